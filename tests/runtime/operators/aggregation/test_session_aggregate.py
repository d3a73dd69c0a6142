"""Sessions over columns against sessions that are found by looking at all records again and again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import DataStream, GraphError, OutputTag
from penstock.aggregates import ApproxCountDistinct, Count, CountDistinct, First, Last, Max, Sum
from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.session_aggregate import SessionAggregateOperator, joined
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, Batch, RowBatch
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.testing import OperatorHarness
from penstock.windows import EventTimeSessionWindows

GAP = 5
KEY = ColumnKey(("k",))
IN_ORDER = {"n": Count(), "total": Sum("v"), "first": First("v"), "last": Last("v")}
BY_PANE = {"n": Count(), "total": Sum("v"), "top": Max("v")}

#: Key, moment in microseconds, value.
Record = tuple[str, int, int]


def rows(records: list[Record]) -> RowBatch:
    return RowBatch([{"k": k, "v": v} for k, _, v in records], [at for _, at, _ in records])


def columns(records: list[Record]) -> ArrowBatch:
    batch = rows(records)
    return ArrowBatch(pa.RecordBatch.from_pylist(list(batch.rows)), pa.array(batch.timestamps, pa.int64()))


def operator(functions: Any = BY_PANE, gap: int = GAP) -> SessionAggregateOperator:
    return SessionAggregateOperator(KEY, Aggregation(KEY.names, functions), gap)


@dataclass
class Model:
    """All sessions, and what came of them. The earlier one of two sessions that become one comes first."""

    reached: float = float("-inf")
    open: list[list[Record]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def push(self, records: list[Record]) -> None:
        parts = [*self.open, *([each] for each in records)]
        while pair := self._two_that_meet(parts):
            one, other = pair
            parts = [part for part in parts if part is not other]
            one += other
        self.late += [v for part in parts if self._end(part) - 1 <= self.reached for _, _, v in part]
        self.open = [part for part in parts if self._end(part) - 1 > self.reached]

    def watermark(self, moment: int) -> list[tuple[Any, ...]]:
        self.reached = max(self.reached, moment)
        over = [part for part in self.open if self._end(part) - 1 <= self.reached]
        self.open = [part for part in self.open if self._end(part) - 1 > self.reached]
        return sorted(
            (part[0][0], min(at for _, at, _ in part), self._end(part), len(part), sum(v for *_, v in part))
            for part in over
        )

    @staticmethod
    def _end(part: list[Record]) -> int:
        return max(at for _, at, _ in part) + GAP

    def _two_that_meet(self, parts: list[list[Record]]) -> tuple[list[Record], list[Record]] | None:
        for one in parts:
            for other in parts:
                if one is not other and one[0][0] == other[0][0] and self._meet(one, other):
                    return one, other
        return None

    @staticmethod
    def _meet(one: list[Record], other: list[Record]) -> bool:
        return any(abs(a - b) < GAP for _, a, _ in one for _, b, _ in other)


def of_rows(found: list[Any]) -> list[tuple[Any, ...]]:
    def micros(moment: Any) -> int:
        return round(moment.timestamp() * 1_000_000)

    return sorted(
        (row["k"], micros(row["window_start"]), micros(row["window_end"]), row["n"], row["total"])
        for row in found
    )


records = st.tuples(st.sampled_from("ab"), st.integers(-20, 60), st.integers(0, 1 << 40))
steps = st.lists(
    st.tuples(st.just("batch"), st.lists(records, min_size=1, max_size=8, unique_by=lambda r: r[2]))
    | st.tuples(st.just("watermark"), st.integers(-20, 70))
    | st.tuples(st.just("restore"), st.just(0)),
    max_size=12,
)


@given(steps=steps, functions=st.sampled_from([BY_PANE, IN_ORDER]), batch_of=st.sampled_from([rows, columns]))
def test_sessions_are_those_that_looking_at_all_records_finds(
    steps: list[tuple[str, Any]], functions: Any, batch_of: Any
) -> None:
    model, late = Model(), Counter[int]()
    harness = OperatorHarness(operator(functions)).__enter__()
    for step, given_ in [*steps, ("watermark", END_OF_TIME - 1)]:
        if step == "batch":
            model.push(given_)
            assert harness.push_batch(batch_of(given_)) == []
        elif step == "watermark":
            assert of_rows(harness.push_watermark(given_)) == model.watermark(given_)
        else:
            snapshot = harness.snapshot()
            late.update(row["v"] for row in harness.side_output(LATE_RECORDS))
            harness.__exit__(None, None, None)
            harness = OperatorHarness(operator(functions), restored=[snapshot]).__enter__()
    late.update(row["v"] for row in harness.side_output(LATE_RECORDS))
    assert late == Counter(model.late)
    harness.__exit__(None, None, None)


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 3), st.integers(-30, 30), st.integers(0, 9)), min_size=1, max_size=30
    )
)
def test_joined_spans_are_those_that_meet_one_after_the_other(spans: list[tuple[int, int, int]]) -> None:
    sessions: list[list[tuple[int, int, int]]] = [[span] for span in spans]

    def meet(one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]) -> bool:
        return any(
            a[0] == b[0] and a[1] < b[1] + b[2] + GAP and b[1] < a[1] + a[2] + GAP for a in one for b in other
        )

    while pairs := [(a, b) for a in sessions for b in sessions if a is not b and meet(a, b)]:
        one, other = pairs[0]
        sessions = [each for each in sessions if each is not one and each is not other] + [one + other]
    keys, firsts, lengths = (np.array(each) for each in zip(*spans, strict=True))
    found = joined(keys, firsts, firsts + lengths, GAP)
    expected = sorted((s[0][0], min(a for _, a, _ in s), max(a + n for _, a, n in s)) for s in sessions)
    assert sorted(zip(*(each.tolist() for each in found[1:]), strict=True)) == expected
    assert found.keys[found.session].tolist() == keys.tolist()
    assert (found.firsts[found.session] <= firsts).all()


def test_first_and_last_go_by_the_order_of_the_records_and_not_by_their_moments() -> None:
    with OperatorHarness(operator(IN_ORDER)) as harness:
        harness.push_batch(columns([("a", 9, 1), ("a", 12, 2), ("a", 6, 3)]))
        harness.push_batch(columns([("a", 3, 4)]))
        (row,) = harness.push_watermark(100)
    assert (row["first"], row["last"]) == (1, 4)


def test_the_earlier_of_two_sessions_that_become_one_comes_first() -> None:
    with OperatorHarness(operator(IN_ORDER)) as harness:
        harness.push_batch(columns([("a", 20, 1)]))
        harness.push_batch(columns([("a", 12, 2)]))
        harness.push_batch(columns([("a", 16, 3)]))
        (row,) = harness.push_watermark(100)
    assert (row["first"], row["last"], row["n"]) == (2, 3, 3)


def test_sessions_that_have_ended_leave_nothing_behind() -> None:
    mine = operator()
    with OperatorHarness(mine) as harness:
        for number in range(300):
            harness.push_batch(columns([(f"k{number % 7}-{number}", 3 * number, 1), ("a", 3 * number, 1)]))
            harness.push_watermark(3 * number)
            assert len(mine._keys._numbers) <= 4
        harness.push_watermark(END_OF_TIME - 1)
        assert mine._table is not None
        assert (len(mine._table), len(mine._keys._numbers)) == (0, 0)


def test_sessions_go_on_in_two_subtasks() -> None:
    keys = [f"k{number}" for number in range(20)]
    with OperatorHarness(operator()) as harness:
        harness.push_batch(columns([(key, 10, 1) for key in keys]))
        snapshot = harness.snapshot()
    found = []
    for subtask in (0, 1):
        with OperatorHarness(operator(), restored=[snapshot], subtask=subtask, parallelism=2) as harness:
            own = key_group_range(subtask, 2, 128)
            mine = [key for key in keys if own.first <= key_group_of(key, 128) <= own.last]
            assert mine
            harness.push_batch(columns([(key, 7, 5) for key in mine]))
            found += harness.push_watermark(END_OF_TIME - 1)
    assert of_rows(found) == sorted((key, 7, 15, 2, 6) for key in keys)


def test_another_gap_is_refused_when_sessions_are_restored() -> None:
    with OperatorHarness(operator()) as harness:
        harness.push_batch(columns([("a", 1, 1)]))
        snapshot = harness.snapshot()
    with pytest.raises(PenstockError, match=r"the restored windows are .* keep aggregates of sessions"):
        OperatorHarness(operator(gap=6), restored=[snapshot]).__enter__()


def test_functions_that_can_not_merge_are_refused_with_what_else_there_is() -> None:
    def kinds(function: Any) -> Any:
        def build(stream: DataStream[Any]) -> DataStream[Any]:
            return stream.key_by("k").window(EventTimeSessionWindows(5)).aggregate("kinds", n=function)

        return build

    with pytest.raises(GraphError, match=r"CountDistinct and functions without merge.*ApproxCountDistinct"):
        OperatorHarness.of(kinds(CountDistinct("v")))
    with OperatorHarness.of(kinds(ApproxCountDistinct("v"))) as harness:
        harness.push_batch(columns([("a", 0, 1), ("a", 0, 2), ("a", 9_000_000, 1)]))
        harness.push_batch(columns([("a", 4_500_000, 3)]))
        (row,) = harness.push_watermark(END_OF_TIME - 1)
    assert row["n"] == 3


def test_late_records_of_rows_and_of_columns_come_out_as_they_came() -> None:
    late = OutputTag("late")

    def visits(stream: DataStream[Any]) -> DataStream[Any]:
        windows = stream.key_by("k").window(EventTimeSessionWindows(5e-6)).side_output_late_data(late)
        return windows.aggregate("visits", n=Count())

    made: list[Any] = [rows, columns]
    for batch_of in made:
        with OperatorHarness.of(visits) as harness:
            harness.push_watermark(19)
            batch: Batch = batch_of([("a", 1, 7), ("a", 17, 8), ("b", 15, 9), ("b", 16, 10)])
            harness.push_batch(batch)
            assert harness.side_output("late") == [{"k": "a", "v": 7}]
            assert [row["n"] for row in harness.push_watermark(END_OF_TIME - 1)] == [2, 1]
