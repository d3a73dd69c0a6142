"""Windows with triggers: when they emit, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from left_behind import rows_left

from penstock import AggregateFunction, OutputTag
from penstock.runtime.operators import held_watermark
from penstock.runtime.operators.windows.triggered_window import TRIGGERED_WINDOWS, TriggeredWindowOperator
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.time.windows import GLOBAL_WINDOW
from penstock.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeProcessingTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    RecordWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimestampedValue,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

pytestmark = pytest.mark.usefixtures("either_backend")

TEN = TumblingEventTimeWindows(1e-5)  # ten microseconds: timestamps in these tests are small numbers
SECONDS = 1_000_000


def first(pair: Any) -> Any:
    return pair[0]


def tell(key: str, window: TimeWindow, records: Sequence[Any]) -> list[Any]:
    return [(key, tuple(window), [value for _, value in records])]


def values(key: str, window: TimeWindow, records: Sequence[Any]) -> list[Any]:
    return [[value for _, value in records]]


def windowed(assigner: Any, function: Any = tell, **said: Any) -> Any:
    """A function that builds a harness; `said` are calls by name."""

    def build(rows: Any) -> Any:
        windows = rows.key_by(first).window(assigner)
        for name, argument in said.items():
            windows = getattr(windows, name)(argument)
        return windows.apply("w", function)

    return build


def pushed(harness: OperatorHarness, *records: tuple[str, int, int]) -> list[Any]:
    """Push records of key, value and timestamp."""
    return harness.push([(key, value) for key, value, _ in records], [stamp for *_, stamp in records])


def test_windows_of_processing_time_emit_when_the_time_of_day_has_passed_them() -> None:
    with OperatorHarness.of(windowed(TumblingProcessingTimeWindows(10), values)) as harness:
        now = harness.clock.now()
        harness.advance(10 - now % 10)  # to the beginning of a window
        assert harness.push([("a", 1), ("b", 2)]) == []
        assert harness.advance(5) == []
        assert harness.push([("a", 3)]) == []
        assert harness.advance(5) == [[1, 3], [2]]
        assert harness.batches[-1].timestamps is None


def test_windows_of_processing_time_emit_at_the_end_of_the_input() -> None:
    with OperatorHarness.of(windowed(TumblingProcessingTimeWindows(10), values)) as harness:
        harness.push([("a", 1)])
        assert harness.push_watermark(END_OF_TIME) == [[1]]
        assert harness.state(TRIGGERED_WINDOWS) == {}


def test_sliding_and_cumulative_windows_of_processing_time_hold_a_record_several_times() -> None:
    for assigner in (SlidingProcessingTimeWindows(10, 5), CumulativeProcessingTimeWindows(10, 5)):
        with OperatorHarness.of(windowed(assigner, values)) as harness:
            harness.advance(20 - harness.clock.now() % 10)
            harness.push([("a", 1)])
            assert harness.advance(5) == [[1]]
            assert harness.advance(5) == [[1]]
            assert harness.advance(50) == []


def test_a_session_of_processing_time_ends_when_nothing_has_come_for_a_gap() -> None:
    with OperatorHarness.of(windowed(ProcessingTimeSessionWindows(10), values)) as harness:
        for value in range(3):
            assert harness.push([("a", value)]) == []
            assert harness.advance(9) == []
        assert harness.advance(1) == [[0, 1, 2]]


def test_windows_of_processing_time_come_back_from_a_snapshot() -> None:
    build = windowed(TumblingProcessingTimeWindows(10), values)
    with OperatorHarness.of(build) as harness:
        harness.push([("a", 1)])
        saved = harness.snapshot()
    with OperatorHarness.of(build, restored=[saved]) as harness:
        assert harness.advance(10) == [[1]]


def test_results_before_the_end_come_every_so_often_while_there_is_something_new() -> None:
    early = EventTimeTrigger(early=ContinuousProcessingTimeTrigger(1))
    with OperatorHarness.of(windowed(TEN, values, trigger=early)) as harness:
        pushed(harness, ("a", 1, 1))
        assert harness.advance(1) == [[1]]
        assert harness.advance(5) == []
        pushed(harness, ("a", 2, 2))
        assert harness.advance(1) == [[1, 2]]
        assert harness.push_watermark(9) == [[1, 2]]
        assert harness.advance(5) == []


def test_results_in_event_time_come_every_so_often_and_at_the_end() -> None:
    often = windowed(TEN, values, trigger=ContinuousEventTimeTrigger(4e-6))
    with OperatorHarness.of(often) as harness:
        pushed(harness, ("a", 1, 0), ("a", 2, 5))
        assert harness.push_watermark(2) == []
        assert harness.push_watermark(3) == [[1, 2]]
        assert harness.push_watermark(8) == []
        pushed(harness, ("a", 3, 9))
        assert harness.push_watermark(9) == [[1, 2, 3]]


def test_continuous_triggers_work_for_sessions_as_well() -> None:
    session = EventTimeSessionWindows(1e-5)
    with OperatorHarness.of(windowed(session, values, trigger=ContinuousEventTimeTrigger(4e-6))) as harness:
        pushed(harness, ("a", 1, 0), ("a", 2, 5))
        assert harness.push_watermark(3) == [[1, 2]]
        pushed(harness, ("a", 3, 12))
        assert harness.push_watermark(15) == [[1, 2, 3]]
        assert harness.push_watermark(21) == [[1, 2, 3]]
    early = EventTimeTrigger(early=ContinuousProcessingTimeTrigger(1))
    with OperatorHarness.of(windowed(session, values, trigger=early)) as harness:
        pushed(harness, ("a", 1, 0), ("a", 2, 5))
        assert harness.advance(1) == [[1, 2]]
        assert harness.push_watermark(20) == [[1, 2]]


def test_what_a_window_of_event_time_emits_has_its_last_microsecond_as_timestamp() -> None:
    with OperatorHarness.of(windowed(TEN, values, trigger=EventTimeTrigger(CountTrigger(1)))) as harness:
        pushed(harness, ("a", 1, 5), ("a", 2, 25))
        harness.push_watermark(9)
        assert [list(batch.timestamps or ()) for batch in harness.batches] == [[9, 29], [9]]


def test_late_records_make_a_window_emit_again_as_long_as_it_is_kept() -> None:
    tag = OutputTag[Any]("too late")
    build = windowed(TEN, values, allowed_lateness=timedelta(microseconds=5), side_output_late_data=tag)
    with OperatorHarness.of(build) as harness:
        pushed(harness, ("a", 1, 5))
        assert harness.push_watermark(9) == [[1]]
        assert pushed(harness, ("a", 2, 6), ("a", 3, 7)) == [[1, 2], [1, 2, 3]]
        assert harness.push_watermark(14) == []
        assert pushed(harness, ("a", 4, 6), ("a", 5, 11)) == []
        assert harness.side_output("too late") == [("a", 4)]
        assert harness.statistics().extra == {"late_records": 1, "windows": 1}


def test_windows_without_a_trigger_take_the_tag_as_well() -> None:
    with OperatorHarness.of(windowed(TEN, side_output_late_data=OutputTag[Any]("too late"))) as harness:
        harness.push_watermark(20)
        pushed(harness, ("a", 1, 5))
        assert harness.side_output("too late") == [("a", 1)]


class Longest(AggregateFunction[Any, list[Any], list[Any]]):
    """Changes its accumulator in place, and emits it."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        first.extend(second)
        return first


def test_a_result_that_was_emitted_does_not_change_with_the_accumulator() -> None:
    def build(rows: Any) -> Any:
        windows = rows.key_by(first).window(TEN).trigger(EventTimeTrigger(CountTrigger(1)))
        return windows.aggregate("w", Longest())

    with OperatorHarness.of(build) as harness:
        assert pushed(harness, ("a", 1, 1), ("a", 2, 2), ("a", 3, 3)) == [[1], [1, 2], [1, 2, 3]]


def test_sessions_that_merge_merge_what_they_hold() -> None:
    session = EventTimeSessionWindows(1e-5)

    def aggregated(rows: Any) -> Any:
        return rows.key_by(first).window(session).aggregate("w", Longest())

    def reduced(rows: Any) -> Any:
        return rows.key_by(first).window(session).reduce("w", lambda a, b: (a[0], f"{a[1]}{b[1]}"))

    records = [("a", 1, 20), ("a", 2, 2), ("b", 3, 10), ("a", 4, 11), ("a", 5, 45), ("a", 6, 15)]
    for build, expected in (
        (aggregated, [[3], [2, 1, 4, 6], [5]]),
        (reduced, [("b", 3), ("a", "2146"), ("a", 5)]),
    ):
        with OperatorHarness.of(build) as harness:
            pushed(harness, *records)
            assert harness.push_watermark(END_OF_TIME) == expected


def test_a_session_that_was_purged_is_still_joined_while_it_is_kept() -> None:
    build = windowed(
        EventTimeSessionWindows(1e-5), trigger=PurgingTrigger(EventTimeTrigger()), allowed_lateness=1e-5
    )
    with OperatorHarness.of(build) as harness:
        pushed(harness, ("a", 1, 10))
        assert harness.push_watermark(20) == [("a", (10, 20), [1])]
        assert pushed(harness, ("a", 2, 5)) == [("a", (5, 20), [2])]
        assert harness.push_watermark(END_OF_TIME) == []
        assert harness.state(TRIGGERED_WINDOWS) == {}


def test_a_session_of_processing_time_that_was_purged_is_still_joined() -> None:
    build = windowed(ProcessingTimeSessionWindows(10), trigger=PurgingTrigger(CountTrigger(1)))
    with OperatorHarness.of(build, clock=ManualClock(1_000)) as harness:
        assert harness.push([("a", 1)]) == [("a", (1_000 * SECONDS, 1_010 * SECONDS), [1])]
        harness.advance(5)
        assert harness.push([("a", 2)]) == [("a", (1_000 * SECONDS, 1_015 * SECONDS), [2])]
        harness.advance(10)
        assert harness.state(TRIGGERED_WINDOWS) == {}


class Everything(ProcessingTimeSessionWindows[Any]):
    """One session that never ends."""

    is_endless = True


def test_a_session_without_an_end_that_was_purged_leaves_nothing() -> None:
    build = windowed(Everything(10), values, trigger=PurgingTrigger(CountTrigger(1)))
    with OperatorHarness.of(build) as harness:
        assert harness.push([("a", 1), ("b", 2)]) == [[1], [2]]
        assert harness.state(TRIGGERED_WINDOWS) == {}


def test_a_function_behind_an_aggregation_gets_key_window_and_result() -> None:
    def named(key: str, window: TimeWindow, result: Any) -> Iterator[Any]:
        yield key, tuple(window), result

    def reduced(rows: Any) -> Any:
        return rows.key_by(first).window(TEN).reduce("w", lambda a, b: (a[0], a[1] + b[1]), named)

    def aggregated(rows: Any) -> Any:
        windows = rows.key_by(first).window(TEN).trigger(EventTimeTrigger())
        return windows.aggregate("w", Longest(), window_function=named)

    for build, expected in ((reduced, ("a", 3)), (aggregated, [1, 2])):
        with OperatorHarness.of(build) as harness:
            pushed(harness, ("a", 1, 1), ("a", 2, 2))
            assert harness.push_watermark(9) == [("a", (0, 10), expected)]


def test_windows_without_keys_hold_all_records() -> None:
    def applied(rows: Any) -> Any:
        return rows.window_all(TEN).apply("w", lambda window, records: [(tuple(window), sorted(records))])

    def reduced(rows: Any) -> Any:
        return rows.window_all(TEN).reduce(
            "w", max, lambda window, record: [(window.start_timestamp, record)]
        )

    def counted(rows: Any) -> Any:
        return rows.count_window_all(2).aggregate("w", Longest())

    for build, expected in (
        (applied, [((0, 10), [("a", 1), ("b", 2)])]),
        (reduced, [(0, ("b", 2))]),
        (counted, [[1, 2]]),
    ):
        with OperatorHarness.of(build) as harness:
            rows = pushed(harness, ("a", 1, 1), ("b", 2, 2))
            assert rows + harness.push_watermark(9) == expected


class AtStop(Trigger[Any]):
    """Emits when a record says stop, and some time after the first record; sums up what it has seen."""

    def __init__(self) -> None:
        self.cleared: list[TimeWindow] = []

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        seen = ctx.state("seen", 0)
        if not seen.value():
            assert timestamp is not None
            ctx.register_event_time_timer(timestamp + 3)
            ctx.state("due").update(timestamp + 3)
        seen.update(seen.value() + 1)
        if element[1] == "stop":
            ctx.delete_event_time_timer(ctx.state("due").value())
            return TriggerResult.FIRE_AND_PURGE
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.merge_state("seen", lambda a, b: a + b)
        ctx.merge_state("due", min)
        ctx.register_event_time_timer(ctx.state("due").value())

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        self.cleared.append(window)


def operator_of(harness: OperatorHarness) -> TriggeredWindowOperator:
    operator = harness._operator
    assert isinstance(operator, TriggeredWindowOperator)
    return operator


def test_a_trigger_of_the_users_own_has_state_and_timers_for_each_window() -> None:
    build = windowed(TEN, values, trigger=AtStop())
    with OperatorHarness.of(build) as harness:
        pushed(harness, ("a", 1, 0), ("b", 2, 2))
        saved = harness.snapshot()
    with OperatorHarness.of(build, restored=[saved]) as harness:
        assert harness.push_watermark(3) == [[1]]
        assert harness.push([("b", "stop")], [4]) == [[2, "stop"]]
        assert harness.state(TRIGGERED_WINDOWS)["b"] == {(0, 10): [{"seen": 2, "due": 5}, [], []]}
        assert harness.push_watermark(9) == []
        assert sorted(operator_of(harness)._trigger.cleared) == [(0, 10), (0, 10)]  # type: ignore[attr-defined]
        assert harness.state(TRIGGERED_WINDOWS) == {}


class Doubles(Trigger[dict[str, int]]):
    """Changes each record that it receives."""

    def on_element(
        self, element: dict[str, int], timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        element["n"] *= 2
        return TriggerResult.FIRE


@pytest.mark.parametrize(
    "trigger",
    [
        Doubles(),
        PurgingTrigger(Doubles()),
        EventTimeTrigger(early=Doubles()),
        EventTimeTrigger(early=PurgingTrigger(Doubles())),
    ],
    ids=repr,
)
def test_a_trigger_of_the_users_own_does_not_change_the_records_of_its_window(trigger: Any) -> None:
    def build(rows: Any) -> Any:
        windows = rows.key_by(lambda row: "all").window(TEN).trigger(trigger)
        return windows.apply("w", lambda key, window, records: [record["n"] for record in records])

    with OperatorHarness.of(build) as harness:
        assert harness.push([{"n": 1}], [5]) == [1]


class UntilPayday(RecordWindowAssigner[dict[str, int]]):
    """Takes the end of the window out of the record."""

    def windows(self, record: dict[str, int], timestamp: int) -> Sequence[TimeWindow]:
        return [TimeWindow(timestamp, record.pop("payday"))]


class OwnSessions(EventTimeSessionWindows[dict[str, int]]):
    def windows(self, record: dict[str, int], timestamp: int) -> Sequence[TimeWindow]:
        return [TimeWindow(timestamp, record.pop("payday"))]


@pytest.mark.parametrize(
    "assigner",
    [UntilPayday(), OwnSessions(5), EventTimeSessionWindows(lambda row: row.pop("payday") / SECONDS)],
)
def test_an_assigner_of_the_users_own_does_not_change_the_records(assigner: Any) -> None:
    with OperatorHarness.of(windowed(assigner, lambda key, window, records: records)) as harness:
        harness.push([{0: "a", "payday": 8}], [5])
        assert harness.push_watermark(100) == [{0: "a", "payday": 8}]


@pytest.mark.parametrize("assigner", [TumblingProcessingTimeWindows(5), EventTimeSessionWindows(5)])
def test_assigners_that_only_need_the_timestamp_name_no_function(assigner: Any) -> None:
    assert assigner.function is None, "so the operator copies no record for them"


def test_a_trigger_of_the_users_own_merges_its_state() -> None:
    with OperatorHarness.of(windowed(EventTimeSessionWindows(1e-5), values, trigger=AtStop())) as harness:
        pushed(harness, ("a", 1, 20), ("a", 2, 5), ("a", 3, 12))
        ((entry,),) = ([*windows.values()] for windows in harness.state(TRIGGERED_WINDOWS).values())
        assert entry[:2] == [{"seen": 3, "due": 8}, [8]]
        assert harness.push_watermark(8) == [[2, 1, 3]]


def test_a_trigger_object_is_each_subtasks_own() -> None:
    trigger = AtStop()
    with OperatorHarness.of(windowed(TEN, values, trigger=trigger)) as harness:
        pushed(harness, ("a", 1, 0))
        harness.push_watermark(9)
    assert trigger.cleared == []


class NoZeros(Evictor[Any]):
    """Takes zeros out before, and the first record behind the function."""

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        return [element for element in elements if element.value[1]]

    def evict_after(self, elements: list[TimestampedValue], window: TimeWindow) -> Sequence[TimestampedValue]:
        return elements[1:]


@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (CountEvictor(2), [[0, 1], [2, 3]]),
        (TimeEvictor(3e-6), [[0, 1], [1, 2, 3]]),
        (NoZeros(), [[1], [2, 3]]),
    ],
)
def test_evictors_take_records_out_for_good(evictor: Any, expected: list[list[int]]) -> None:
    build = windowed(GlobalWindows(), values, trigger=CountTrigger(2), evictor=evictor)
    with OperatorHarness.of(build) as harness:
        rows = pushed(harness, ("a", 0, 1), ("a", 1, 2), ("a", 2, 3))
        saved = harness.snapshot()
    with OperatorHarness.of(build, restored=[saved]) as harness:
        assert rows + pushed(harness, ("a", 3, 4)) == expected


def test_an_evictor_that_leaves_nothing_emits_nothing() -> None:
    build = windowed(GlobalWindows(), values, trigger=CountTrigger(1), evictor=NoZeros())
    with OperatorHarness.of(build) as harness:
        assert harness.push([("a", 0)]) == []
        assert harness.state(TRIGGERED_WINDOWS) == {}


def test_a_global_window_is_told_to_its_function() -> None:
    build = windowed(GlobalWindows(), tell, trigger=PurgingTrigger(CountTrigger(2)))
    with OperatorHarness.of(build) as harness:
        assert harness.push([("a", 1), ("a", 2), ("a", 3)]) == [("a", GLOBAL_WINDOW, [1, 2])]


WAYS: dict[str, Any] = {
    "session": windowed(EventTimeSessionWindows(1e-6), values),
    "early": windowed(TEN, values, trigger=EventTimeTrigger(CountTrigger(1), CountTrigger(2))),
    "often": windowed(TEN, values, trigger=EventTimeTrigger(ContinuousProcessingTimeTrigger(3600))),
    "often in event time": windowed(TEN, values, trigger=ContinuousEventTimeTrigger(3e-6)),
    "late": windowed(TEN, values, allowed_lateness=1e-5),
    "sliding": windowed(SlidingEventTimeWindows(2e-5, 1e-5), values, trigger=EventTimeTrigger()),
    "own": windowed(TEN, values, trigger=AtStop()),
    "count": lambda rows: rows.key_by(first).count_window(1).apply("w", values),
}


@pytest.mark.parametrize("way", WAYS)
def test_windows_that_have_ended_leave_nothing_behind(way: str) -> None:
    with OperatorHarness.of(WAYS[way]) as harness:
        total, part = (10_000, 2_000) if way in ("session", "own") else (1_000, 250)
        for number in range(0, total, part):
            stamps = [10 * each for each in range(number, number + part)]
            harness.push([(f"key {each}", each) for each in range(number, number + part)], stamps)
            harness.complete_checkpoint(harness.snapshot())
            harness.push_watermark(stamps[-1])
            harness.flush()
        harness.push_watermark(END_OF_TIME - 1)
        while operator_of(harness).holds_watermark:
            harness.flush()
        windows = operator_of(harness)._windows
        assert windows is not None
        assert harness.state(TRIGGERED_WINDOWS) == {}
        for index in windows.due.values():
            assert not index._keys
            assert len(index._heap) < 1_100
        assert rows_left(harness) == 0


def test_a_storm_of_windows_lets_a_checkpoint_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_watermark, "MOST_FIRED", 3)
    build = windowed(EventTimeSessionWindows(1e-6), values)
    with OperatorHarness.of(build) as harness:
        pushed(harness, *((f"key {n}", n, 5) for n in range(10)))
        rows = harness.push_watermark(9)
        assert len(rows) == 3
        assert harness.watermarks == ()
        saved = harness.snapshot()
        rest = []
        while not harness.watermarks:
            rest += harness.flush()
        assert len(rest) == 7
        assert harness.watermarks == (9,)
    with OperatorHarness.of(build, restored=[saved]) as harness:
        again = []
        while more := harness.flush():
            again += more
        assert sorted(again) == sorted(rest)


def test_records_behind_a_held_watermark_come_behind_what_it_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_watermark, "MOST_FIRED", 1)
    with OperatorHarness.of(windowed(EventTimeSessionWindows(1e-6), values)) as harness:
        pushed(harness, ("a", 1, 5), ("b", 2, 5), ("c", 3, 5))
        assert harness.push_watermark(5) == [[1]]
        assert pushed(harness, ("c", 4, 5)) == [[2], [3]]
        assert harness.side_output("late_records") == [("c", 4)]
        assert harness.watermarks == (5,)
