"""A generated loop does what its operators do one after another: records, times, counters, calls, errors.

A run of random operators is opened twice. One chain fuses them. In the other chain every output is also read
by an edge, so nothing is fused. Both get the same batches, with times or without, in a subtask that copies
records or in one that does not. Functions may be pure, change their record, keep it and change it later,
return `None`, yield, and fail at some records in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.runtime.errors import OperatorError, OperatorLocation, UserLocation
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.functions.fused_loop import FusedLoop
from penstock.runtime.operators.functions.record_functions import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.testing.manual_time import ManualClock

Row = dict[str, Any]


def raised(row: Row) -> Row:
    return {**row, "n": row["n"] + 1}


def itself(row: Row) -> Row:
    return row


SHARED: Row = {"n": 0, "items": [1]}


def shared(row: Row) -> Row:
    return SHARED


def divided(row: Row) -> Row:
    return {**row, "n": 12 // row["n"]}


def halved(row: Row) -> Row:
    return {**row, "n": row["n"] // 2, "twice": row["items"]}


def is_even(row: Row) -> bool:
    return row["n"] % 2 == 0


def is_small(row: Row) -> Any:
    return row["items"][row["n"]] if row["n"] < 1 else 0


def twice(row: Row) -> list[Row]:
    return [row, row]


def yields(row: Row) -> Iterator[Row]:
    yield row
    if row["n"] == 3:
        yield {**row, "n": 1 // (row["n"] - 3)}
    yield {**row, "n": 7}


def nothing_or_text(row: Row) -> Any:
    return None if row["n"] != 2 else "a text is no list of records"


def ends(row: Row) -> Row:
    next(iter(range(5 - row["n"]))) if row["n"] < 6 else None
    return row


class Effects:
    """Functions with effects, which note the record of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []

    def changing(self, number: int) -> Callable[[Row], Row]:
        def change(row: Row) -> Row:
            self.calls.append((number, row["n"]))
            row["n"] += 1
            row["items"].append(number)
            return row

        return change

    def keeping(self, number: int) -> Callable[[Row], Row]:
        kept: list[Row] = []

        def keep(row: Row) -> Row:
            self.calls.append((number, row["n"]))
            for old in kept:
                old["n"] = -1
                old["items"].clear()
            kept[:] = [row]
            return row

        return keep

    def picking(self, number: int) -> Callable[[Row], bool]:
        keep = self.keeping(number)

        def pick(row: Row) -> bool:
            return keep(row)["n"] % 3 != 0

        return pick

    def growing(self, number: int) -> Callable[[Row], Iterator[Row]]:
        def grow(row: Row) -> Iterator[Row]:
            self.calls.append((number, row["n"]))
            yield row
            row["items"].append("again")
            yield row
            row.clear()

        return grow


PURE: dict[str, tuple[Any, Callable[..., Any]]] = {
    "map raised": (MapOperator, raised),
    "map itself": (MapOperator, itself),
    "map shared": (MapOperator, shared),
    "map halved": (MapOperator, halved),
    "map divided": (MapOperator, divided),
    "filter even": (FilterOperator, is_even),
    "filter small": (FilterOperator, is_small),
    "flat_map twice": (FlatMapOperator, twice),
    "flat_map yields": (FlatMapOperator, yields),
    "flat_map text": (FlatMapOperator, nothing_or_text),
}

#: Has no effect, but the bytecode does not show it.
UNKNOWN = "map ends"
PURE_ONES = {**PURE, UNKNOWN: (MapOperator, ends)}

WITH_EFFECTS: dict[str, tuple[Any, Callable[[Effects, int], Any]]] = {
    "map changing": (MapOperator, Effects.changing),
    "map keeping": (MapOperator, Effects.keeping),
    "filter picking": (FilterOperator, Effects.picking),
    "flat_map growing": (FlatMapOperator, Effects.growing),
}


@dataclass
class Outcome:
    rows: list[Any] = field(default_factory=list)
    times: list[Any] = field(default_factory=list)
    error: str = ""
    counts: list[tuple[int, int]] = field(default_factory=list)
    calls: list[tuple[int, Any]] = field(default_factory=list)


def outcome(steps: Sequence[str], batches: Sequence[Batch], *, fuses: bool, isolates: bool) -> Outcome:
    found, effects = Outcome(), Effects()
    operators: list[Operator] = []
    for number, step in enumerate(steps):
        if step in PURE_ONES:
            kind, function = PURE_ONES[step]
            operators.append(kind(function))
        else:
            kind, made = WITH_EFFECTS[step]
            operators.append(kind(made(effects, number)))
    last = len(operators) - 1

    def emit(index: int, tag: str | None, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        if index == last:
            found.rows += batch.rows
            found.times += [None] * len(batch) if batch.timestamps is None else batch.timestamps

    for operator in operators:
        operator.isolates = isolates
    contexts = {}
    for number in range(len(operators)):
        location = OperatorLocation(f"op{number}", 0, 1, UserLocation("job.py", number, "main"))
        contexts[f"op{number}"] = OperatorContext(
            location, ConnectorContext("job", "job", f"op{number}", 0, 1, 1, ManualClock())
        )
    chain = OperatorChain(
        [(contexts[f"op{number}"].location, operator) for number, operator in enumerate(operators)],
        emit,
        lambda _: None,
        emitting=None if fuses else range(len(operators)),
    )
    chain.open(contexts)
    try:
        for batch in batches:
            for _ in chain.process(batch):
                pass
    except OperatorError as error:
        found.error = str(error)
    found.counts = [(s.records_in, s.records_out) for s in chain.statistics().values()]
    found.calls = effects.calls
    return found


def batch_of(numbers: Sequence[int], timed: bool) -> RowBatch:
    rows = [{"n": n, "items": [1, 0, 2]} for n in numbers]
    return RowBatch(rows, [1000 + at for at in range(len(numbers))] if timed else None)


pure_steps = st.lists(st.sampled_from(sorted(PURE_ONES)), min_size=1, max_size=8)
steps = st.lists(st.sampled_from([*PURE_ONES, *WITH_EFFECTS]), min_size=1, max_size=8)
numbers = st.lists(st.lists(st.integers(-1, 9), max_size=8), min_size=1, max_size=3)


def test_the_pure_functions_only_read_and_the_others_do_not() -> None:
    assert all(only_reads(function) for _, function in PURE.values())
    assert not only_reads(ends)
    assert not any(only_reads(made(Effects(), 0)) for _, made in WITH_EFFECTS.values())


@settings(max_examples=150 * DEEP)
@given(steps, numbers, st.booleans())
@example(["map changing", "map raised", "filter even", "map keeping", "flat_map yields"], [[2, 4, 5]], True)
@example(["filter even", "filter small", "map keeping", "map shared", "map changing"], [[0, 1, 2]], False)
@example(["filter even", "map raised", "filter small", "flat_map growing", "map itself"], [[0, -2, 0]], True)
def test_what_comes_out_is_what_comes_out_step_by_step(
    steps: list[str], numbers: list[list[int]], timed: bool
) -> None:
    fused = outcome(steps, [batch_of(n, timed) for n in numbers], fuses=True, isolates=True)
    single = outcome(steps, [batch_of(n, timed) for n in numbers], fuses=False, isolates=True)
    if single.error:
        assert fused.error
        return
    assert fused.error == ""
    assert (fused.rows, fused.times, fused.counts) == (single.rows, single.times, single.counts)
    assert fused.calls == single.calls


@settings(max_examples=150 * DEEP)
@given(
    st.lists(st.sampled_from(sorted(PURE_ONES)), min_size=1, max_size=8),
    numbers,
    st.booleans(),
    st.booleans(),
)
@example(["map raised", "map ends", "filter even"], [[1, 6, 5]], True, False)
@example(["filter even", "map divided", "map halved"], [[4, 0]], True, True)
@example(["filter even", "map itself", "flat_map text"], [[4, 2]], False, True)
@example(["filter even", "filter small", "flat_map yields"], [[0, 4]], True, True)
@example(["map itself", "flat_map yields", "map divided"], [[4, 3]], False, False)
def test_the_first_record_that_fails_alone_fails_the_loop_with_the_same_message(
    steps: list[str], numbers: list[list[int]], timed: bool, isolates: bool
) -> None:
    """Records of functions without effects depend on nothing but themselves, so each may run alone."""
    isolates = isolates and UNKNOWN not in steps  # else it may begin a loop of its own
    fused = outcome(steps, [batch_of(n, timed) for n in numbers], fuses=True, isolates=isolates)
    alone = Outcome()
    for n in (n for batch in numbers for n in batch):
        one = outcome(steps, [batch_of([n], timed)], fuses=False, isolates=isolates)
        if one.error:
            alone.error = one.error
            break
        alone.rows += one.rows
    runs_behind_flat_map = any(step.startswith("flat_map") for step in steps[:-1])
    if not (alone.error and runs_behind_flat_map):
        assert fused.error == alone.error
    if not alone.error:
        assert fused.rows == alone.rows


def test_both_chains_of_these_laws_are_what_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    begin = FusedLoop.__init__

    def counted(self: FusedLoop, operators: Any, passed: Any) -> None:
        made.append(len(operators))
        begin(self, operators, passed)

    monkeypatch.setattr(FusedLoop, "__init__", counted)
    run = ["map raised", "filter even", "flat_map twice", "map itself", "map raised"]
    outcome(run, [batch_of([1, 2], False)], fuses=False, isolates=False)
    assert made == []
    outcome(run, [batch_of([1, 2], False)], fuses=True, isolates=False)
    assert made == [3, 2]
