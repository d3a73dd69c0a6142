"""Timers of process functions: fired in order by watermarks and the time of day, part of each snapshot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, ClassVar

import pytest
from left_behind import rows_left

from penstock import KeyedProcessFunction, OutputTag, RuntimeContext
from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.functions.process import TIMERS
from penstock.runtime.operators.held_watermark import MOST_FIRED
from penstock.runtime.record.elements import END_OF_TIME
from penstock.testing import ManualClock, OperatorHarness

pytestmark = pytest.mark.usefixtures("either_backend")

SECOND = 1_000_000


class Alarms(KeyedProcessFunction[str, tuple[str, str, int], tuple[str, int]]):
    """Sets and deletes timers as records say, `(key, what, at)`, and emits those that fire."""

    domains = OutputTag[str]()

    def process(self, value: tuple[str, str, int], ctx: RuntimeContext) -> None:
        _, what, at = value
        timers = ctx.timer_service
        {
            "set": timers.register_event_time_timer,
            "delete": timers.delete_event_time_timer,
            "set clock": timers.register_processing_time_timer,
            "delete clock": timers.delete_processing_time_timer,
        }[what](at)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[tuple[str, int]]:
        assert ctx.timestamp == (at if ctx.time_domain == "event_time" else None)
        ctx.output(self.domains, str(ctx.time_domain))
        yield ctx.current_key, at


class Every(KeyedProcessFunction[str, int, int]):
    """Fires at the record's moment, and then again and again after an interval."""

    def __init__(self, interval: int, kind: str = "event") -> None:
        self.interval, self.kind = interval, kind

    def set_timer(self, at: int, ctx: RuntimeContext) -> None:
        getattr(ctx.timer_service, f"register_{self.kind}_time_timer")(at)

    def process(self, value: int, ctx: RuntimeContext) -> None:
        self.set_timer(value, ctx)

    def on_timer(self, at: int, ctx: RuntimeContext) -> list[int]:
        self.set_timer(at + self.interval, ctx)
        return [at]


def alarms(**settings: Any) -> OperatorHarness:
    return OperatorHarness.of(lambda s: s.key_by(lambda row: row[0]).process("alarms", Alarms()), **settings)


def every(interval: int, kind: str = "event", **settings: Any) -> OperatorHarness:
    function = Every(interval, kind)
    return OperatorHarness.of(lambda s: s.key_by(lambda _: "k").process("every", function), **settings)


def sets(*timers: tuple[str, int], what: str = "set") -> list[tuple[str, str, int]]:
    return [(key, what, at) for key, at in timers]


def test_watermark_fires_the_timers_that_it_has_reached_in_order_and_with_their_keys() -> None:
    with alarms() as harness:
        harness.push(sets(("late", 30), ("b", 10), ("a", 10), ("b", 5), ("b", 10)))
        assert harness.push_watermark(9) == [("b", 5)]
        assert harness.push_watermark(10) == [("b", 10), ("a", 10)]
        assert [list(batch.timestamps or ()) for batch in harness.batches] == [[5], [10, 10]]
        assert harness.watermarks == (9, 10)
        assert harness.side_output("domains") == ["event_time"] * 3
        assert harness.statistics().extra[TIMERS] == 1


def test_deleted_timer_does_not_fire_and_belongs_to_its_key_alone() -> None:
    with alarms() as harness:
        harness.push(sets(("a", 10), ("b", 10)))
        harness.push(sets(("a", 10), ("c", 99), what="delete"))
        assert harness.push_watermark(10) == [("b", 10)]


def test_timer_that_sets_the_next_one_fires_for_each_interval_that_the_watermark_has_passed() -> None:
    with every(10) as harness:
        harness.push([5])
        assert harness.push_watermark(37) == [5, 15, 25, 35]
        assert harness.push_watermark(44) == []
        assert harness.push_watermark(45) == [45]


def test_at_the_end_of_the_input_all_timers_fire_and_set_no_others() -> None:
    with every(10) as harness:
        harness.push([5])
        assert harness.push_watermark(END_OF_TIME) == [5]
        assert harness.end_of_data() == []
        assert harness.watermarks == (END_OF_TIME,)


@pytest.mark.parametrize("at", [20, 7])
def test_timer_behind_which_event_time_has_come_is_refused_by_name(at: int) -> None:
    with alarms() as harness:
        harness.push_watermark(20)
        with pytest.raises(OperatorError, match=rf"event time at {at} for key 'a' is in the past.*20"):
            harness.push(sets(("a", at)))


def test_timer_that_sets_itself_again_is_refused_instead_of_firing_for_ever() -> None:
    with every(0) as harness:
        harness.push([5])
        with pytest.raises(OperatorError, match="is in the past: it must be later than 5 "):
            harness.push_watermark(9)


def test_moment_may_be_a_datetime_with_a_time_zone() -> None:
    with every(SECOND) as harness:
        harness.push([datetime(2026, 1, 1, tzinfo=UTC)])
        new_year = 1_767_225_600 * SECOND
        assert harness.push_watermark(new_year) == [new_year]
        with pytest.raises(OperatorError, match="has no time zone"):
            harness.push([datetime(2027, 1, 1)])  # noqa: DTZ001 (that is the point)


class Touches(KeyedProcessFunction[str, str, str]):
    """Touches timers where there is no key, or without an `on_timer`."""

    def __init__(self, in_open: bool) -> None:
        self.in_open = in_open

    def open(self, ctx: RuntimeContext) -> None:
        if self.in_open:
            ctx.timer_service.register_event_time_timer(1)

    def process(self, value: str, ctx: RuntimeContext) -> None:
        ctx.timer_service.register_event_time_timer(1)


def test_timer_without_a_key_or_without_on_timer_is_refused() -> None:
    def harness(*, in_open: bool) -> OperatorHarness:
        return OperatorHarness.of(lambda s: s.key_by(str).process("touches", Touches(in_open)))

    with pytest.raises(OperatorError, match="A timer belongs to the key of a record"):
        harness(in_open=True)
    with harness(in_open=False) as running, pytest.raises(OperatorError, match="has no method `on_timer"):
        running.push(["a"])


# -- processing time ----------------------------------------------------------------------------------------


def test_timers_of_processing_time_fire_when_the_time_of_day_has_come() -> None:
    with alarms(clock=ManualClock(start=100.0)) as harness:
        harness.push(sets(("a", 105 * SECOND), ("b", 103 * SECOND), ("c", 103 * SECOND), what="set clock"))
        harness.push(sets(("c", 103 * SECOND), what="delete clock"))
        harness.clock.advance(2.9)
        assert harness.flush() == []
        harness.clock.advance(0.1)
        assert harness.flush() == [("b", 103 * SECOND)]
        harness.clock.advance(60)
        assert harness.flush() == [("a", 105 * SECOND)]
        assert [batch.timestamps for batch in harness.batches] == [None, None]
        assert harness.side_output("domains") == ["processing_time"] * 2


def test_timers_of_processing_time_do_not_fire_at_the_end_of_the_input() -> None:
    with alarms(clock=ManualClock(start=100.0)) as harness:
        harness.push(sets(("a", 105 * SECOND), what="set clock"))
        assert (harness.push_watermark(END_OF_TIME), harness.end_of_data()) == ([], [])


def test_interval_of_processing_time_makes_up_for_a_standstill() -> None:
    with every(SECOND, "processing", clock=ManualClock(start=100.0)) as harness:
        harness.push([101 * SECOND])
        snapshot = harness.snapshot()
    with every(SECOND, "processing", clock=ManualClock(start=103.5), restored=[snapshot]) as harness:
        assert harness.flush() == [101 * SECOND, 102 * SECOND, 103 * SECOND]
        assert harness.flush() == []


def test_timer_of_processing_time_in_the_past_is_refused() -> None:
    with (
        alarms(clock=ManualClock(start=100.0)) as harness,
        pytest.raises(OperatorError, match="is in the past: it must be later than 99999999 "),
    ):
        harness.push(sets(("a", 99 * SECOND), what="set clock"))


# -- storms -------------------------------------------------------------------------------------------------


def storm(harness: OperatorHarness, timers: int) -> list[tuple[str, int]]:
    """Set many timers over ten moments; what they are to give, in order."""
    harness.push(sets(*((f"k{n}", n % 10) for n in range(timers))))
    return sorted(((f"k{n}", n % 10) for n in range(timers)), key=lambda timer: timer[1])


def flushed(harness: OperatorHarness) -> list[Any]:
    """The output while a watermark is held."""
    rows: list[Any] = []
    while found := harness.flush():
        rows += found
    return rows


def test_watermark_waits_until_all_timers_of_a_storm_have_fired() -> None:
    with alarms() as harness:
        expected = storm(harness, 3 * MOST_FIRED + 1)
        first = harness.push_watermark(50)
        assert first == expected[:MOST_FIRED]
        assert harness.watermarks == ()
        assert first + flushed(harness) == expected
        assert harness.watermarks == (50,)


class Slow(Alarms):
    """Takes a tenth of a second for each timer."""

    clock: ClassVar[ManualClock]

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[tuple[str, int]]:
        self.clock.advance(0.1)
        return super().on_timer(at, ctx)


def test_checkpoint_may_come_behind_each_timer_of_a_slow_function() -> None:
    Slow.clock = ManualClock()
    slow = OperatorHarness.of(
        lambda s: s.key_by(lambda row: row[0]).process("slow", Slow()), clock=Slow.clock
    )
    with slow as harness:
        harness.push(sets(("a", 1), ("b", 2), ("c", 3)))
        assert harness.push_watermark(5) == [("a", 1)]
        assert harness.flush() == [("b", 2)]
        assert harness.watermarks == ()
        assert harness.flush() == [("c", 3)]
        assert harness.watermarks == (5,)


def test_records_behind_a_storm_come_after_all_of_its_timers() -> None:
    with alarms() as harness:
        expected = storm(harness, 2 * MOST_FIRED)
        harness.push_watermark(50)
        assert harness.push(sets(("new", 60))) == expected[MOST_FIRED:]
        assert harness.watermarks == (50,)
        assert harness.push_watermark(60) == [("new", 60)]


def test_second_watermark_takes_the_place_of_one_that_is_held() -> None:
    with alarms() as harness:
        expected = storm(harness, 2 * MOST_FIRED + 7)
        harness.push(sets(("new", 55)))
        fired = harness.push_watermark(50) + harness.push_watermark(60) + flushed(harness)
        assert fired == [*expected, ("new", 55)]
        assert harness.watermarks[-1] == 60
        assert list(harness.watermarks) == sorted(set(harness.watermarks))


def test_end_of_the_input_fires_what_is_left_of_a_storm() -> None:
    with alarms() as harness:
        expected = storm(harness, 2 * MOST_FIRED + 7)
        fired = harness.push_watermark(50) + harness.push_watermark(END_OF_TIME)
        assert (fired, harness.end_of_data()) == (expected, [])


@pytest.mark.parametrize("new_parallelism", [1, 3])
def test_snapshot_in_the_middle_of_a_storm_has_exactly_the_timers_that_are_left(new_parallelism: int) -> None:
    """They fire at once, without a watermark: event time had reached them."""
    with alarms() as harness:
        expected = storm(harness, 3 * MOST_FIRED)
        fired = harness.push_watermark(50)
        snapshot = harness.snapshot()
        assert len(flushed(harness)) == 2 * MOST_FIRED
    again = []
    for subtask in range(new_parallelism):
        settings = {"subtask": subtask, "parallelism": new_parallelism, "restored": [snapshot]}
        with alarms(**settings) as harness:
            part = flushed(harness)
            assert [at for _, at in part] == sorted(at for _, at in part)
            again += part
            assert harness.watermarks == ()
    assert sorted(again) == sorted(expected[len(fired) :])


class Sour(KeyedProcessFunction[str, int, str]):
    """Sets a timer for each record; fails over 13, as a record or as a timer."""

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[str]:
        if value == 13:
            raise ValueError(value)
        ctx.timer_service.register_event_time_timer(value)
        yield f"record in {ctx.time_domain}"

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[str]:
        yield f"timer in {ctx.time_domain}"
        if at == 1300:
            raise ValueError(at)


def sour() -> OperatorHarness:
    return OperatorHarness.of(lambda s: s.key_by(lambda _: "k").process("sour", Sour()))


def test_records_behind_a_storm_are_no_part_of_it() -> None:
    with sour() as harness:
        harness.push([n for n in range(2 * MOST_FIRED) if n not in (13, 1300)])
        harness.push_watermark(9_000)
        assert harness.push([9_001])[-2:] == ["timer in event_time", "record in None"]
    with sour() as harness:
        harness.push([n for n in range(2 * MOST_FIRED) if n not in (13, 1300)])
        harness.push_watermark(9_000)
        with pytest.raises(OperatorError, match=r"process function Sour.process .*ValueError.* on record 13"):
            harness.push([13])


def test_failure_of_a_timer_names_the_function_the_key_and_the_moment() -> None:
    with sour() as harness:
        harness.push([1300])
        with pytest.raises(OperatorError) as caught:
            harness.push_watermark(9_000)
    message = str(caught.value)
    assert re.search(r"Sour\.on_timer \(.*test_process_timers\.py:\d+\) for key 'k' at 1300 failed", message)
    assert re.search(r"ValueError: 1300, at .*test_process_timers\.py:\d+ in on_timer$", message)


# -- snapshots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelisms", [(1, 1), (1, 2), (3, 2)])
def test_timers_go_with_their_keys(parallelisms: tuple[int, int]) -> None:
    old, new = parallelisms
    timers = [(f"k{n}", 10 + n % 4) for n in range(40)]
    snapshots = []
    for subtask in range(old):
        with alarms(subtask=subtask, parallelism=old) as harness:
            harness.push(sets(*(timer for timer in timers if harness.owns(timer[0]))))
            harness.push_watermark(10)
            snapshots.append(harness.snapshot())
    fired = []
    for subtask in range(new):
        with alarms(subtask=subtask, parallelism=new, restored=snapshots) as harness:
            fired += harness.push_watermark(20)
    assert sorted(fired) == sorted((key, at) for key, at in timers if at > 10)


def test_function_that_has_no_on_timer_any_more_keeps_the_timers() -> None:
    with alarms() as harness:
        harness.push(sets(("a", 10)))
        snapshot = harness.snapshot()

    class Quiet(KeyedProcessFunction[str, str, str]):
        def process(self, value: str, ctx: RuntimeContext) -> list[str]:
            return [value]

    def quiet(stream: Any) -> Any:
        return stream.key_by(lambda row: row[0]).process("alarms", Quiet())

    with OperatorHarness.of(quiet, restored=[snapshot]) as harness:
        assert harness.push_watermark(99) == []
        assert harness.watermarks == (99,)
        snapshot = harness.snapshot()
    with alarms(restored=[snapshot]) as harness:
        assert harness.push_watermark(99) == [("a", 10)]


# -- side outputs -------------------------------------------------------------------------------------------


class Sort(KeyedProcessFunction[str, int, int]):
    """Odd numbers to a side output; `wrong` takes one that is not declared."""

    odd = OutputTag[int]()
    negative = OutputTag[int]("below zero")

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[int]:
        if value % 2:
            ctx.output(self.odd, value)
        elif value < 0:
            ctx.output(self.negative, value)
        elif value == 1000:
            ctx.output(OutputTag[int]("odd numbers"), value)
        else:
            yield value


def sort(read: Callable[[Any], Any] = lambda stream: stream) -> OperatorHarness:
    return OperatorHarness.of(lambda s: read(s.key_by(lambda _: "k").process("sort", Sort())))


def test_records_leave_on_the_side_output_of_their_tag() -> None:
    with sort() as harness:
        assert harness.push([1, 2, -4, 3, 4]) == [2, 4]
        assert harness.side_output("odd") == [1, 3]
        assert harness.side_output("below zero") == [-4]


def test_side_output_that_is_not_declared_is_refused_with_the_nearest_name() -> None:
    with sort() as harness, pytest.raises(OperatorError, match="Sort declares no side output 'odd numbers'"):
        harness.push([1000])


def test_records_at_the_side_leave_in_front_of_the_watermark_that_fires_them() -> None:
    with alarms() as harness:
        storm(harness, 2 * MOST_FIRED)
        harness.push_watermark(50)
        assert len(harness.side_output("domains")) == MOST_FIRED
        flushed(harness)
        assert [(name, len(list(some))) for name, some in groupby(harness.side_output("domains"))] == [
            ("event_time", 2 * MOST_FIRED)
        ]


@pytest.mark.parametrize("what", ["set", "set clock"])
def test_timers_that_have_fired_leave_nothing_behind(what: str) -> None:
    total, part = 10_000, 2_500
    with alarms() as harness:
        now = int(harness.clock.now()) * SECOND
        for number in range(0, total, part):
            moments = range(number, number + part)
            harness.push([(f"key {at % 1_000}", what, now + at + SECOND) for at in moments])
            assert rows_left(harness) >= part
            if what == "set":
                harness.push_watermark(now + number + part // 2 + SECOND)
        harness.push_watermark(END_OF_TIME - 1)
        harness.advance(2)
        while harness.flush():
            pass
        assert len(harness.outputs) == total
        assert rows_left(harness) == 0
        timers = harness._operator._timers  # type: ignore[attr-defined]
        assert len(timers) == 0
        assert timers._event._heap == timers._processing._heap == []
