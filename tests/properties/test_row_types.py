"""The result for rows is the same for any cut into batches, or fails with the same error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aggregates import Count, CountDistinct, First, Last, Max, Mean, Min, StdDev, Sum
from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.column_aggregate import ColumnAggregate
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator, KeyedAggregateOperator
from penstock.runtime.operators.expression_operators import (
    FilterExpressionOperator,
    SelectOperator,
)
from penstock.runtime.operators.expressions import rows_where
from penstock.runtime.operators.operator import Operator
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.state.stable_hash import stable_hash
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.testing.harness import HarnessSnapshot, OperatorHarness
from penstock.windows import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows

V: Final = pc.field("v")
#: Of each law; more of them found nothing more.
EXAMPLES: Final = 16 * DEEP
#: Values of every type that an expression may meet, beside those that it can't hold.
VALUES: Final = (
    None,
    True,
    0,
    3,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    2.5,
    -0.0,
    math.nan,
    "a",
    "DE",
    "\ud800",
    b"a",
    Decimal("1.5"),
    Decimal("1.50"),
    Decimal("12345678901234567890.123"),
    Decimal("NaN"),
    date(2020, 1, 1),
    datetime(2020, 1, 1),  # noqa: DTZ001 - a naive one
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2022, 11, 6, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York")),
    timedelta(microseconds=1),
    timedelta.max,
    pd.Timestamp("2020-01-01T00:00:00.000000001Z"),
    pd.Timedelta(1, "ns"),
    np.datetime64(1, "ns"),
    np.int32(3),
    [1, None],
    [1, "a"],
    [],
    {"x": 1},
    {"x": "a", "y": 2},
    {},
    (1, "a"),
    {1: 2},
    {1, 2},
)
EXPRESSIONS: Final[dict[str, Operator]] = {
    "isin": FilterExpressionOperator(V.isin(["DE"])),
    "greater": FilterExpressionOperator(V > 2),
    "null": FilterExpressionOperator(V.is_null()),
    "itself": SelectOperator(["k"], {"w": V}),
    "sum": SelectOperator(None, {"w": V + 1}),
    "twice": SelectOperator(None, {"w": V * V, "is": V.is_valid()}),
    "divided": SelectOperator(None, {"w": V / 2}),
    "filled": SelectOperator(None, {"w": pc.coalesce(V, 0)}),
    "lower": SelectOperator(None, {"w": pc.utf8_lower(V)}),
    "nested": SelectOperator(None, {"w": pc.coalesce(pc.field("v", "x"), 7), "x": pc.field("v", "x")}),
    "chosen": SelectOperator(None, {"w": pc.if_else(pc.field("k") > 1, V, V)}),
    "year": SelectOperator(None, {"w": pc.year(V)}),
}


def cut(rows: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    parts, start = [], 0
    for length in [*lengths, len(rows)]:
        parts.append(list(rows[start : start + length]))
        start += length
    return [part for part in parts if part]


def outcome(make: Callable[[], Operator], batches: Sequence[list[Any]]) -> tuple[list[Any], str]:
    """The output, and the error, each with its types."""
    rows: list[Any] = []
    try:
        with OperatorHarness(make()) as harness:
            for batch in batches:
                rows += harness.push(batch)
    except OperatorError as error:
        return [], str(error)
    return list(map(repr, rows)), ""


@pytest.mark.parametrize("expression", EXPRESSIONS)
@settings(max_examples=EXAMPLES)
@given(
    values=st.lists(st.sampled_from(VALUES), max_size=8),
    lengths=st.lists(st.integers(1, 3), max_size=8),
    absent=st.booleans(),
)
def test_an_expression_over_rows_gives_the_same_for_any_cut(
    expression: str, values: list[Any], lengths: list[int], absent: bool
) -> None:
    rows = [{"k": place, "v": value} for place, value in enumerate(values)]
    if absent:
        rows.append({"k": -1})
    make = lambda: EXPRESSIONS[expression]  # noqa: E731
    assert outcome(make, cut(rows, lengths)) == outcome(make, [rows])


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_field_is_given_as_it_is(value: Any) -> None:
    with OperatorHarness(SelectOperator([], {"w": V})) as harness:
        assert harness.push([{"v": value}, {"v": [value, 1]}])[0]["w"] is value


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (2**53 + 1, 1),
        (Decimal("12345678901234567890.123"), Decimal("0")),
        (pd.Timestamp("2020-01-01T00:00:00.000000001Z"), pd.Timedelta(1, "ns")),
        (np.datetime64(1, "ns"), np.timedelta64(1, "ns")),
    ],
    ids=repr,
)
def test_a_computed_value_keeps_its_precision(value: Any, more: Any) -> None:
    summed = SelectOperator([], {"w": pc.add(pc.field("v"), pc.field("m"))})
    with OperatorHarness(summed) as harness:
        (row,) = harness.push([{"v": value, "m": more}])
    assert row["w"] == value + more
    with OperatorHarness(SelectOperator([], {"w": pc.coalesce(V, V)})) as harness:
        assert harness.push([{"v": 2**63 + 3}]) == [{"w": 2**63 + 3}]


def test_only_fields_of_the_expression_are_looked_at() -> None:
    rows = [{"width": 3, "id": {1}, "wid": object(), "it's a width": {2}}]
    with OperatorHarness(FilterExpressionOperator(pc.field("width") > 2)) as harness:
        assert harness.push(rows) == rows
    for name in ("", "a b", "a) in ", "Name(x)", 'quote"', "ünï", "\n", "a.b", "field_ref"):
        with OperatorHarness(FilterExpressionOperator(pc.field(name).isin(["DE"]))) as harness:
            assert harness.push([{name: None}, {name: "DE"}, {}]) == [{name: "DE"}]


def test_parts_of_a_field_that_are_not_there_are_null() -> None:
    rows = [{"a": {"b": {"c": 1}}}, {"a": {"x": {3}}}, {"a": None}, {}, {"a": {"b": {"c": 2, "d": {1}}}}]
    with OperatorHarness(FilterExpressionOperator(pc.field("a", "b", "c") > 1)) as harness:
        assert harness.push(rows) == rows[4:]


KEYS: Final = (None, "a", b"a", "b", 1, 1.0, True, 2.5, 2**53 + 1, Decimal("2.5"), date(2020, 1, 1))
#: Values by what they have in common.
NUMBERS: Final = (None, True, 0, 3, 2.5, -7, 2.75, math.nan, Decimal("1.5"), Decimal("1.50"), 2**63)
MOMENTS: Final = (
    None,
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2019, 12, 31, 20, tzinfo=ZoneInfo("America/New_York")),
    datetime(2020, 1, 1),  # noqa: DTZ001 - a naive one
    date(2020, 1, 1),
    pd.Timestamp("2020-01-01T00:00:00.000000001Z"),
    pd.Timestamp("2020-01-01T00:00:00.000000002Z"),
    timedelta(microseconds=1),
    pd.Timedelta(1, "ns"),
)
OTHERS: Final = (
    None,
    "a",
    b"a",
    "b",
    {"x": 1},
    {"x": "a", "y": None},
    [1],
    ["a"],
    [],
    {},
    1,
    {1, 2},
    (1,),
    2**64,
)
FUNCTIONS: Final[dict[str, tuple[ColumnAggregate, ...]]] = {
    "counts": (Count(), Count("v")),
    "sums": (Sum("v"), Count("v")),
    "extremes": (Min("v"), Max("v"), Count()),
    "least": (Min("v"),),
    "ends": (First("v"), Last("v")),
    "distinct": (CountDistinct("v"),),
    "means": (Mean("v"), StdDev("v")),
}
BY_K: Final = ColumnKey(("k",))


class Pipeline:
    """Senders, with or without a combiner, upstream of an aggregation by key."""

    def __init__(
        self, functions: Sequence[ColumnAggregate], largest: float, *, combine: bool, receivers: int
    ) -> None:
        # Their sums of floats depend on the order of additions, by a part of the largest value.
        self._rounds = any(isinstance(function, Mean | StdDev) for function in functions)
        self._largest = largest
        self._functions = {f"f{number}": function for number, function in enumerate(functions)}
        self._combine = combine
        self._receivers = self._open(receivers, [])
        self.results: dict[Any, str] = {}

    def _aggregation(self) -> Aggregation:
        return Aggregation(BY_K.names, self._functions)

    def _open(self, count: int, snapshots: Sequence[HarnessSnapshot]) -> list[OperatorHarness]:
        def operator() -> Operator:
            return KeyedAggregateOperator(BY_K, self._aggregation(), has_combiner=self._combine)

        return [
            OperatorHarness(operator(), subtask=subtask, parallelism=count, restored=snapshots)
            for subtask in range(count)
        ]

    def send(self, batches: Sequence[list[Any]]) -> None:
        if not self._combine:
            for batch in batches:
                self._deal(RowBatch(batch))
            return
        with OperatorHarness(CombineOperator(BY_K, self._aggregation())) as sender:
            for batch in batches:
                sender.push(batch)
            sender.end_of_data()
            for sent in sender.batches:
                self._deal(sent)

    def restart(self, receivers: int) -> None:
        snapshots = [receiver.snapshot() for receiver in self._receivers]
        self.close()
        self._receivers = self._open(receivers, snapshots)

    def close(self) -> None:
        for receiver in self._receivers:
            receiver.close()

    def _deal(self, batch: Batch) -> None:
        if isinstance(batch, ArrowBatch):
            hashes = key_hashes(BY_K.columns(batch.batch))
        else:
            hashes = np.array([stable_hash(BY_K(row)) for row in batch.rows], np.uint64)
        groups = (hashes % np.uint64(128)).astype(np.int64)
        owners = groups * len(self._receivers) // 128
        for owner, receiver in enumerate(self._receivers):
            for row in receiver.push_batch(rows_where(batch, pa.array(owners == owner))):
                key = row.pop("k")
                rounded = {name: self._rounded(value) for name, value in row.items()}
                self.results[key] = f"{key!r}: {rounded!r}"

    def _rounded(self, value: Any) -> Any:
        if not self._rounds or value is None:
            return value
        return type(value), round(float(value) / self._largest, 6)


def largest_of(rows: Sequence[Any]) -> float:
    """The largest absolute value among finite numbers, at least 1."""
    values = [row["v"] for row in rows if isinstance(row["v"], int | float | Decimal)]
    return max([1.0, *(abs(float(value)) for value in values if math.isfinite(value))])


def aggregated(
    rows: Sequence[Any],
    functions: Sequence[ColumnAggregate],
    lengths: Sequence[int],
    *,
    combine: bool = False,
    receivers: int = 1,
    restart: tuple[int, int] = (0, 1),
) -> dict[Any, str] | str:
    """The last result of each key, with the types of its values; or that it failed."""
    pipeline = Pipeline(functions, largest_of(rows), combine=combine, receivers=receivers)
    place, after = restart
    try:
        pipeline.send(cut(rows[:place], lengths))
        pipeline.restart(after)
        pipeline.send(cut(rows[place:], lengths))
    except OperatorError:
        return "failed"
    finally:
        pipeline.close()
    return pipeline.results


@pytest.mark.parametrize("functions", FUNCTIONS.values(), ids=FUNCTIONS)
@settings(max_examples=EXAMPLES)
@given(values=st.sampled_from([NUMBERS, MOMENTS, OTHERS]), data=st.data())
def test_an_aggregation_of_rows_gives_the_same_for_any_cut_parallelism_and_restart(
    values: Sequence[Any], functions: tuple[ColumnAggregate, ...], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(values)), max_size=10))
    rows = [{"k": key, "v": value} for key, value in drawn]
    lengths = data.draw(st.lists(st.integers(1, 3), max_size=10))
    restart = data.draw(st.tuples(st.integers(0, len(rows)), st.integers(1, 3)))
    receivers = data.draw(st.integers(1, 3))
    combine = Aggregation(["k"], {str(f): f for f in functions}).combines and data.draw(st.booleans())
    whole = aggregated(rows, functions, [])
    assert (
        aggregated(rows, functions, lengths, combine=combine, receivers=receivers, restart=restart) == whole
    )


SECOND: Final = 1_000_000
SUMS: Final = (None, True, 3, 2.5, 2**62, -(2**62), Decimal("1.5"), Decimal("1.25"))
WINDOWS: Final[dict[str, Any]] = {
    "tumbling": TumblingEventTimeWindows(4),
    "sliding": SlidingEventTimeWindows(size=4, slide=2),
    "sessions": EventTimeSessionWindows(3),
}


def in_windows(
    rows: Sequence[Any], windows: Any, functions: Sequence[ColumnAggregate], lengths: Sequence[int]
) -> list[str] | str:
    """The results of all windows, sorted; or that it failed."""
    by_name = {f"f{number}": function for number, function in enumerate(functions)}

    def build(stream: Any) -> Any:
        return stream.key_by("k").window(windows).aggregate("w", combine=False, **by_name)

    try:
        with OperatorHarness.of(build) as harness:
            for batch in cut(rows, lengths):
                harness.push(batch, [row["at"] * SECOND for row in batch])
            found = harness.push_watermark(1000 * SECOND)
    except OperatorError:
        return "failed"
    return sorted(map(repr, found))


@pytest.mark.parametrize("windows", WINDOWS)
@settings(max_examples=EXAMPLES)
@given(
    functions=st.sampled_from([f for name, f in FUNCTIONS.items() if name not in ("distinct", "means")]),
    values=st.sampled_from([NUMBERS, MOMENTS, OTHERS, SUMS]),
    data=st.data(),
)
def test_windows_of_rows_give_the_same_for_any_cut(
    windows: str, functions: tuple[ColumnAggregate, ...], values: Sequence[Any], data: st.DataObject
) -> None:
    record = st.tuples(st.sampled_from(KEYS), st.sampled_from(values), st.integers(0, 9))
    drawn = data.draw(st.lists(record, max_size=10))
    lengths = data.draw(st.lists(st.integers(1, 3), max_size=10))
    rows = [{"k": key, "v": value, "at": at} for key, value, at in drawn]
    whole = in_windows(rows, WINDOWS[windows], functions, [])
    assert in_windows(rows, WINDOWS[windows], functions, lengths) == whole


@pytest.mark.parametrize(
    ("function", "values", "right"),
    [
        (Sum("v"), [2.5, 2, 2.5, 2], 9.0),
        (Sum("v"), [2, Decimal("2.50")], Decimal("4.50")),
        (Min("v"), [pd.Timestamp(2, unit="ns"), pd.Timestamp(1, unit="ns")], pd.Timestamp(1, unit="ns")),
        (Last("v"), [pd.Timedelta(1, "ns"), pd.Timedelta(3, "ns")], pd.Timedelta(3, "ns")),
        (Max("v"), [2**63, 2**63 + 1, 5], 2**63 + 1),
        (Max("v"), [2**53, 2.0**53, 2**53 + 1], 2**53 + 1),
        (First("v"), [None, Decimal("1.50"), "a"], Decimal("1.50")),
        (Last("v"), [b"a", {"x": 1}, {"x": 1, "y": [2]}], {"x": 1, "y": [2]}),
        (Count("v"), [{1}, (2,), object, None], 3),
    ],
    ids=repr,
)
def test_a_result_keeps_its_type_and_precision(function: Any, values: list[Any], right: Any) -> None:
    for lengths in ([], [1] * len(values)):
        rows = [{"k": "a", "v": value} for value in values]
        found = aggregated(rows, [function], lengths)
        assert found == {"a": f"'a': { ({'f0': right})!r}"}


@pytest.mark.parametrize(
    ("function", "values", "message"),
    [
        (Min("v"), ["a", b"a"], "key 'k'.*Min.*b'a' of type binary and 'a' of type string"),
        (Max("v"), [date(2020, 1, 1), MOMENTS[1]], "key 'k'.*have no order.*with map"),
        (Min("v"), [MOMENTS[1], MOMENTS[3]], "have no order"),
        (Sum("v"), [2.5, Decimal(1)], "no exact sum"),
        (Sum("v"), [2**53 + 1, 0.5], "no double equals 9007199254740993"),
        (Sum("v"), [2**64], r"record \{'k': 'k', 'v': 18446744073709551616\}.*64 bits"),
        (Last("v"), [(1, 2)], r"record \{'k': 'k', 'v': \(1, 2\)\}.*can't be stored exactly"),
        (Last("v"), ["\ud800"], "can't be stored exactly in a column of type string"),
        (Last("v"), [timedelta.max], "can't be stored exactly in a column of type duration"),
    ],
    ids=repr,
)
def test_what_can_not_be_held_is_refused_by_name(function: Any, values: list[Any], message: str) -> None:
    for batches in ([values], [[value] for value in values]):
        operator = KeyedAggregateOperator(BY_K, Aggregation(["k"], {"f": function}))
        with OperatorHarness(operator) as harness, pytest.raises(OperatorError, match=message):
            push_all(harness, [[{"k": "k", "v": value} for value in batch] for batch in batches])


def push_all(harness: OperatorHarness, batches: Sequence[list[Any]]) -> None:
    for batch in batches:
        harness.push(batch)
