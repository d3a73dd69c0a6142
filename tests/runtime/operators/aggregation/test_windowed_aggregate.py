"""Windows over columns: different values count once a window, and a combiner in front changes no result."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from left_behind import rows_left

from penstock import DataStream, GraphError
from penstock.aggregates import Count, CountDistinct, First, Last, Sum
from penstock.runtime.operators.aggregation.aggregation import Aggregation, is_partial
from penstock.runtime.operators.aggregation.keyed_aggregate import PATIENCE
from penstock.runtime.operators.aggregation.paned_aggregate import PanedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.window_aggregate import (
    AlignedWindowOperator,
    WindowedAggregateOperator,
)
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import (
    END_OF_TIME,
    ArrowBatch,
    Batch,
    RowBatch,
    StreamStatus,
    Watermark,
)
from penstock.runtime.time.watermarks import WatermarkValve
from penstock.testing import ManualClock, OperatorHarness
from penstock.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

SECOND = 1_000_000
KEY = ColumnKey(("k",))
TUMBLING, SLIDING = TumblingEventTimeWindows(10), SlidingEventTimeWindows(size=10, slide=4)
FUNCTIONS: dict[str, Any] = {"n": Count(), "total": Sum("v"), "first": First("v"), "last": Last("v")}

Rows = list[dict[str, Any]]


def rows(*triples: tuple[Any, Any, int]) -> RowBatch:
    return RowBatch([{"k": k, "v": v} for k, v, _ in triples], [at * SECOND for *_, at in triples])


def columns(*triples: tuple[Any, Any, int]) -> ArrowBatch:
    batch = rows(*triples)
    return ArrowBatch(pa.RecordBatch.from_pylist(list(batch.rows)), pa.array(batch.timestamps, pa.int64()))


def operator_of(windows: Any, functions: Any) -> AlignedWindowOperator:
    """The operator that a stream would choose."""
    aggregation = Aggregation(KEY.names, functions)
    keeps_panes = windows is SLIDING and not aggregation.is_ordered
    kind = PanedAggregateOperator if keeps_panes else WindowedAggregateOperator
    return kind(KEY, aggregation, windows)


def receiver(windows: Any, functions: Any = FUNCTIONS, **settings: Any) -> OperatorHarness:
    return OperatorHarness(operator_of(windows, functions), **settings)


def combiner(windows: Any, functions: Any = FUNCTIONS, **settings: Any) -> OperatorHarness:
    return OperatorHarness(WindowCombineOperator(KEY, Aggregation(KEY.names, functions), windows), **settings)


def test_different_values_count_once_in_each_window_also_after_a_restore() -> None:
    def kinds(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").window(SLIDING).aggregate("kinds", kinds=CountDistinct("v"), n=Count())

    draws = Random(1)
    triples = [(draws.choice("ab"), draws.choice([None, 1, 2, 3]), draws.randrange(30)) for _ in range(80)]
    seen: dict[tuple[str, int], list[Any]] = {}
    for k, v, at in triples:
        for start in SLIDING.starts(at * SECOND):
            seen.setdefault((k, start), []).append(v)
    with OperatorHarness.of(kinds) as harness:
        harness.push_batch(rows(*triples[:40]))
        snapshot = harness.snapshot()
    with OperatorHarness.of(kinds, restored=[snapshot]) as harness:
        harness.push_batch(columns(*triples[40:]))
        found = harness.push_watermark(END_OF_TIME - 1)
        assert harness.snapshot().keyed is not None
    got = {(row["k"], row["window_start"].timestamp() * SECOND): (row["kinds"], row["n"]) for row in found}
    assert got == {key: (len({*some} - {None}), len(some)) for key, some in seen.items()}


def test_values_of_windows_that_have_fired_are_forgotten() -> None:
    functions = {"kinds": CountDistinct("v")}
    operator = WindowedAggregateOperator(KEY, Aggregation(KEY.names, functions), TUMBLING)
    with OperatorHarness(operator) as harness:
        harness.push_batch(rows(("a", 1, 1), ("a", 2, 2), ("a", 3, 11)))
        assert len(operator._pairs["kinds"]) == 3
        harness.push_watermark(10 * SECOND)
        assert len(operator._pairs["kinds"]) == 1


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_windows_that_have_ended_leave_nothing_behind(windows: Any) -> None:
    functions = {"n": Count(), "kinds": CountDistinct("v")}
    operator = operator_of(windows, functions)
    with OperatorHarness(operator) as harness:
        fired = 0
        for number in range(0, 10_000, 2_000):
            batch = columns(*((f"k{each}", each, 10 * each) for each in range(number, number + 2_000)))
            harness.push_batch(batch)
            harness.complete_checkpoint(harness.snapshot())
            fired += len(harness.push_watermark(10 * number * SECOND))
        fired += len(harness.push_watermark(END_OF_TIME - 1))
        assert fired >= 10_000
        assert operator._table is not None
        assert (len(operator._table), len(operator._pairs["kinds"])) == (0, 0)
        assert rows_left(harness) == 0


def test_a_combiner_sends_one_row_a_key_and_pane_and_the_receiver_merges_it_into_its_windows() -> None:
    functions = {"n": Count(), "total": Sum("v")}
    with combiner(SLIDING, functions) as sender, receiver(SLIDING, functions) as harness:
        sender.push_batch(columns(("a", 1, 1), ("a", 2, 1), ("b", 5, 1), ("a", 4, 2)))
        assert sender.push_batch(rows(("a", 8, 3))) == []
        sender.end_of_data()
        (batch,) = sender.batches
        assert isinstance(batch, ArrowBatch)
        assert is_partial(batch.batch)
        assert len(batch) == 3, "panes are 2 s long"
        harness.push_batch(batch)
        found = harness.push_watermark(END_OF_TIME - 1)
    totals = {(row["k"], row["window_start"].timestamp()): row["total"] for row in found}
    assert totals == {("a", -8): 3, ("b", -8): 5, ("a", -4): 15, ("b", -4): 5, ("a", 0): 15, ("b", 0): 5}


def test_what_is_kept_leaves_before_a_watermark_that_ends_a_window_of_it_and_no_other() -> None:
    with combiner(TUMBLING) as sender:
        sender.push_batch(rows(("a", 1, 12), ("a", 1, 25)))
        assert sender.push_watermark(20 * SECOND - 2) == []
        (first, second) = sender.push_watermark(20 * SECOND - 1)
        assert (first[":pane"], second[":pane"]) == (10 * SECOND, 20 * SECOND)
        assert sender.push_watermark(30 * SECOND) == [], "nothing is kept"


def test_what_is_kept_leaves_when_it_is_due_and_before_a_barrier() -> None:
    clock = ManualClock()
    with combiner(TUMBLING, clock=clock) as sender:
        sender.push_batch(rows(("a", 1, 12)))
        assert sender.flush() == []
        clock.advance(PATIENCE)
        assert [row["n:count"] for row in sender.flush()] == [1]
        sender.push_batch(rows(("a", 1, 12)))
        sender.snapshot()
        assert len(sender.outputs) == 2


@pytest.mark.parametrize("make", [rows, columns])
def test_late_records_pass_as_they_are_with_all_of_their_columns(make: Callable[..., Batch]) -> None:
    with combiner(TUMBLING) as sender:
        sender.push_watermark(10 * SECOND)
        sender.push_batch(make(("a", 1, 9), ("a", 2, 12), ("b", 3, 0)))
        (late,) = sender.batches
        assert type(late) is type(make())
        assert (
            list(late.timestamps or ()) == [9 * SECOND, 0] if isinstance(late, RowBatch) else len(late) == 2
        )
        assert sender.outputs == [{"k": "a", "v": 1}, {"k": "b", "v": 3}]


def test_first_and_last_of_windows_that_overlap_go_by_the_order_of_records() -> None:
    def ends(stream: DataStream[Any]) -> DataStream[Any]:
        return (
            stream.key_by("k").window(SLIDING).aggregate("ends", first=First("v"), last=Last("v"), n=Count())
        )

    draws = Random(5)
    triples = [(draws.choice("ab"), number, draws.randrange(30)) for number in range(60)]
    seen: dict[tuple[str, float], list[int]] = {}
    for k, v, at in triples:
        for start in SLIDING.starts(at * SECOND):
            seen.setdefault((k, start / SECOND), []).append(v)
    with OperatorHarness.of(ends) as harness:  # one operator: it does not combine
        for start in range(0, 60, 12):
            harness.push_batch(columns(*triples[start : start + 12]))
        found = harness.push_watermark(END_OF_TIME - 1)
    got = {
        (row["k"], row["window_start"].timestamp()): (row["first"], row["last"], row["n"]) for row in found
    }
    assert got == {key: (values[0], values[-1], len(values)) for key, values in seen.items()}


def test_what_is_late_stays_known_over_a_restore() -> None:
    with combiner(TUMBLING) as sender:
        sender.push_watermark(10 * SECOND)
        snapshot = sender.snapshot()
    with combiner(TUMBLING, restored=[snapshot]) as sender:
        assert sender.push_batch(rows(("a", 1, 9))) == [{"k": "a", "v": 1}]
        assert sender.push_batch(rows(("a", 1, 11))) == []


def test_a_combiner_that_the_snapshot_does_not_know_hands_all_records_on() -> None:
    with receiver(TUMBLING) as harness:
        snapshot = harness.snapshot()
    foreign = type(snapshot)(snapshot.checkpoint_id, {}, None, snapshot.raw)
    for _ in range(2):
        with combiner(TUMBLING, restored=[foreign]) as sender:
            assert sender.push_batch(rows(("a", 1, 11))) == [{"k": "a", "v": 1}]
            foreign = sender.snapshot()


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
@pytest.mark.parametrize("seed", range(15))
def test_a_combiner_in_front_changes_neither_results_nor_late_records(windows: Any, seed: int) -> None:
    """One sender, whose watermarks reach the receiver at once or later; restores on the way."""
    draws = Random(seed)
    work: list[Any] = []
    at = 0
    for _ in range(25):
        at += draws.randrange(4)
        some = [(draws.choice("ab"), draws.randrange(9), max(0, at - draws.randrange(12))) for _ in range(6)]
        work.append(draws.choice([rows, columns])(*some))
        if draws.random() < 0.7:
            work.append(max(0, at - draws.randrange(3, 8)) * SECOND)
    work.append(END_OF_TIME - 1)
    functions = FUNCTIONS if windows is TUMBLING else {"n": Count(), "total": Sum("v")}
    assert outcome(work, windows, functions, combined=True, draws=draws) == outcome(
        work, windows, functions, combined=False, draws=draws
    )


def outcome(work: list[Any], windows: Any, functions: Any, *, combined: bool, draws: Random) -> Any:
    """The receiver's output and the late records, whether a combiner stands in front or not."""
    found: Rows = []
    late: Rows = []
    sender, harness = combiner(windows, functions), receiver(windows, functions)
    for what in work:
        first = len(sender.batches)
        if draws.random() < 0.1:
            snapshot = sender.snapshot()
            found += passed_on(sender, first, harness)
            late += harness.side_output(LATE_RECORDS)
            sender, first = combiner(windows, functions, restored=[snapshot]), 0
            harness = receiver(windows, functions, restored=[harness.snapshot()])
        if combined:
            sender.push_watermark(what) if isinstance(what, int) else sender.push_batch(what)
            found += passed_on(sender, first, harness)
        elif not isinstance(what, int):
            found += harness.push_batch(what)
        if isinstance(what, int):
            found += harness.push_watermark(what)
    late += harness.side_output(LATE_RECORDS)
    return sorted(map(repr, found)), late


def passed_on(sender: OperatorHarness, first: int, harness: OperatorHarness) -> Rows:
    return [row for batch in sender.batches[first:] for row in harness.push_batch(batch)]


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_reduced_rows_of_a_sender_that_was_idle_are_dropped_where_they_are_late(windows: Any) -> None:
    """The receiver's watermark passes that of an idle sender, to which the records are not late."""
    valve = WatermarkValve(2)
    functions = {"n": Count(), "total": Sum("v")}
    with combiner(windows, functions) as sender, receiver(windows, functions) as harness:
        sender.push_watermark(2 * SECOND)
        assert valve.watermark(0, Watermark(2 * SECOND)) is None
        assert valve.status(0, StreamStatus.IDLE) == (None, None)
        passed = valve.watermark(1, Watermark(30 * SECOND))
        assert passed is not None
        harness.push_watermark(passed.timestamp)
        assert valve.status(0, StreamStatus.ACTIVE) == (None, None)
        sender.push_batch(columns(("a", 1, 3), ("a", 2, 4), ("a", 4, 29), ("b", 8, 35)))
        sender.end_of_data()
        (batch,) = sender.batches
        assert isinstance(batch, ArrowBatch)
        assert is_partial(batch.batch)
        harness.push_batch(batch)
        found = harness.push_watermark(END_OF_TIME - 1)
        late = harness.statistics().extra[LATE_RECORDS]
        assert harness.side_output(LATE_RECORDS) == []
    open_windows = {
        (k, start / SECOND): v
        for k, v, at in [("a", 4, 29), ("b", 8, 35)]
        for start in windows.starts(at * SECOND)
        if start + windows.size > 30 * SECOND
    }
    assert {(row["k"], row["window_start"].timestamp()): row["total"] for row in found} == open_windows
    assert late == 2, "two keys and panes have three records"


def test_what_can_not_combine_is_not_combined() -> None:
    def of_kinds(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").window(TUMBLING).aggregate("kinds", kinds=CountDistinct("v"))

    def of_sums(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").window(TUMBLING).aggregate("sums", total=Sum("v"))

    OperatorHarness.of(of_kinds).close()
    with pytest.raises(GraphError, match=r"combine\(.*, window\("):
        OperatorHarness.of(of_sums)


def test_a_wrong_combine_names_the_users_line() -> None:
    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.key_by("k").window(TUMBLING).aggregate("x", combine=1, n=Count())  # type: ignore[call-overload,no-any-return]

    with pytest.raises(
        GraphError, match=r"test_windowed_aggregate.py:\d+.*combine must be True or False, not 1"
    ):
        OperatorHarness.of(build)
