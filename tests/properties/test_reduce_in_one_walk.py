"""A `reduce` that selects keys and folds in one walk does what it does in two: results, state and errors.

A subtask that copies records selects all keys of a batch first. One whose functions only read takes one walk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.runtime.errors import OperatorError, OperatorLocation
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.manual_time import ManualClock


class Place(NamedTuple):
    """Its instances are keys if its parts are."""

    name: Any


def first(row: Any) -> Any:
    return row[0]


def total(before: Any, row: Any) -> Any:
    return row[0], before[1] + row[1]


def inverse(row: Any) -> Any:
    return 6 // row[0]


def quotient(before: Any, row: Any) -> Any:
    return row[0], before[1] // row[1]


def folded(
    batches: Sequence[RowBatch], select: Callable[[Any], Any], function: Callable[..., Any], *, copies: bool
) -> tuple[list[Any], str, dict[Any, Any]]:
    """Rows with times, the error, and the entries of the state with those that changed."""
    backend = HeapKeyedStateBackend(BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec()))
    operator = KeyedReduceOperator(select, function)
    operator.isolates = copies
    location = OperatorLocation("op", 0, 1)
    rows: list[Any] = []
    chain = OperatorChain([(location, operator)], lambda _, tag, batch: rows.append(batch), lambda _: None)
    connector = ConnectorContext("job", "job", "op", 0, 1, 1, ManualClock())
    chain.open({"op": OperatorContext(location, connector, backend)})
    try:
        for batch in batches:
            for _ in chain.process(batch):
                pass
    except OperatorError as error:
        return rows, str(error), {}
    table = backend.table("reduce")
    return rows, "", {**table.entries, "changed": set(table.changed)}


keys = st.sampled_from(
    [1, 1.0, True, 0, "a", "b", None, (1, "a"), (1, 2.0), b"x", [1], {}, float("nan"), 1.5, 1 + 0j]
)
batches = st.lists(st.lists(st.tuples(keys, st.integers(1, 5)), max_size=6), min_size=1, max_size=4)


@settings(max_examples=200 * DEEP)
@given(batches, st.booleans())
@example([[(1, 1)], [(1, 2), (1.0, 3)]], True)
@example([[("a", 1), ([1], 2)]], False)
@example([[(1.5, 1)], [(float("nan"), 2)]], False)
@example([[((1, "a"), 1)], [((1, 1 + 0j), 2)]], False)
@example([[(Place("a"), 1)], [(Place([2]), 2)]], False)
@example([[(1, 1)], [(1, 2), (1 + 0j, 3), (1, 4)]], True)
def test_one_walk_gives_what_two_walks_give(batches: list[list[Any]], timed: bool) -> None:
    given_ = [RowBatch(rows, list(range(len(rows))) if timed else None) for rows in batches]
    once = folded(given_, first, total, copies=False)
    twice = folded(given_, first, total, copies=True)
    assert repr(once) == repr(twice)


@pytest.mark.parametrize(
    ("select", "function", "rows", "wanted"),
    [
        (inverse, total, [(1, 1), (0, 1), (2, 1)], r"key_by function inverse .*on record \(0, 1\)"),
        (first, quotient, [(1, 1), (1, 2), (1, 0), (2, 5)], r"reduce function quotient .*on record \(1, 0\)"),
        (first, quotient, [(1, 1), (1, "x")], r"reduce function quotient .*on record \(1, 'x'\)"),
        (
            inverse,
            total,
            [(1, 1), ("x", 1)],
            r"key_by function inverse .*TypeError: unsupported.*on record \('x', 1\)",
        ),
        (first, total, [(1, 1), ([2], 1)], r"key_by function first .*on record \(\[2\], 1\)"),
    ],
)
def test_a_failure_names_the_function_and_the_record(
    select: Any, function: Any, rows: list[Any], wanted: str
) -> None:
    for copies in (False, True):
        _, error, _ = folded([RowBatch(rows)], select, function, copies=copies)
        assert re.search(wanted, error), error
