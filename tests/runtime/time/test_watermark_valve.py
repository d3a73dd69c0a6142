"""The watermark of several channels together."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark
from penstock.runtime.time.watermarks import WatermarkValve

IDLE, ACTIVE = StreamStatus.IDLE, StreamStatus.ACTIVE


def test_slowest_channel_decides() -> None:
    valve = WatermarkValve(3)
    assert valve.watermark(0, Watermark(10)) is None
    assert valve.watermark(1, Watermark(5)) is None
    assert valve.watermark(2, Watermark(7)) == Watermark(5)
    assert valve.watermark(1, Watermark(20)) == Watermark(7)


def test_watermark_that_does_not_advance_anything_is_swallowed() -> None:
    valve = WatermarkValve(2)
    valve.watermark(0, Watermark(5))
    assert valve.watermark(1, Watermark(5)) == Watermark(5)
    assert valve.watermark(1, Watermark(5)) is None
    assert valve.watermark(1, Watermark(4)) is None
    assert valve.watermark(1, Watermark(6)) is None


def test_negative_event_time_is_time_too() -> None:
    assert WatermarkValve(1).watermark(0, Watermark(-5)) == Watermark(-5)


def test_idle_channel_holds_nobody_up() -> None:
    valve = WatermarkValve(2)
    valve.watermark(0, Watermark(10))
    assert valve.status(1, IDLE) == (None, Watermark(10))
    assert valve.watermark(0, Watermark(11)) == Watermark(11)


def test_input_is_idle_when_all_channels_are_and_active_with_the_first_that_is() -> None:
    valve = WatermarkValve(2)
    assert valve.status(0, IDLE) == (None, None)
    assert valve.status(1, IDLE) == (IDLE, None)
    assert valve.status(1, IDLE) == (None, None)
    assert valve.status(0, ACTIVE) == (ACTIVE, None)
    assert valve.status(1, ACTIVE) == (None, None)


def test_when_the_last_channel_becomes_idle_time_goes_to_the_greatest_watermark() -> None:
    valve = WatermarkValve(3)
    for channel, timestamp in enumerate([30, 20, 10]):
        valve.watermark(channel, Watermark(timestamp))
    assert valve.status(0, IDLE) == (None, None)
    assert valve.status(1, IDLE) == (None, None)
    assert valve.status(2, IDLE) == (IDLE, Watermark(30))


def test_when_the_last_channel_held_nobody_up_its_idleness_advances_nothing() -> None:
    valve = WatermarkValve(2)
    valve.watermark(0, Watermark(10))
    valve.watermark(1, Watermark(30))
    assert valve.status(0, IDLE) == (None, Watermark(30))
    valve.watermark(1, Watermark(40))
    assert valve.status(1, IDLE) == (IDLE, None)


def test_channel_that_comes_back_behind_the_others_does_not_hold_them_up() -> None:
    valve = WatermarkValve(2)
    valve.watermark(1, Watermark(1))
    valve.status(1, IDLE)
    assert valve.watermark(0, Watermark(10)) == Watermark(10)
    assert valve.status(1, ACTIVE) == (None, None)
    assert valve.watermark(0, Watermark(11)) == Watermark(11)
    assert valve.watermark(1, Watermark(5)) is None
    assert valve.watermark(0, Watermark(12)) == Watermark(12)


def test_channel_that_has_caught_up_counts_again() -> None:
    valve = WatermarkValve(2)
    valve.status(1, IDLE)
    valve.watermark(0, Watermark(10))
    valve.status(1, ACTIVE)
    assert valve.watermark(1, Watermark(10)) is None
    assert valve.watermark(0, Watermark(20)) is None
    assert valve.watermark(1, Watermark(15)) == Watermark(15)


def test_end_of_time_of_an_idle_channel_is_remembered() -> None:
    valve = WatermarkValve(2)
    valve.status(0, IDLE)
    assert valve.watermark(0, Watermark(END_OF_TIME)) is None
    assert valve.watermark(1, Watermark(END_OF_TIME)) == Watermark(END_OF_TIME)


def test_what_a_channel_reached_before_it_ended_counts_where_the_others_are_idle() -> None:
    valve = WatermarkValve(2)
    valve.watermark(0, Watermark(5))
    assert valve.watermark(1, Watermark(3)) == Watermark(3)
    assert valve.watermark(0, Watermark(END_OF_TIME)) is None
    assert valve.end(0) == (None, None)
    assert valve.status(1, IDLE) == (IDLE, Watermark(5)), "it may come back, so time is not at its end"
    assert valve.status(1, ACTIVE) == (ACTIVE, None)
    assert valve.watermark(1, Watermark(4)) is None
    assert valve.watermark(1, Watermark(6)) == Watermark(6)
    assert valve.watermark(1, Watermark(END_OF_TIME)) == Watermark(END_OF_TIME)


def test_when_the_last_active_channel_ends_the_input_is_idle_and_nobody_is_held_up_any_more() -> None:
    valve = WatermarkValve(3)
    for channel, timestamp in enumerate([3, 9, 7]):
        valve.watermark(channel, Watermark(timestamp))
    assert valve.status(1, IDLE) == (None, None)
    assert valve.status(2, IDLE) == (None, None)
    assert valve.watermark(0, Watermark(END_OF_TIME)) == Watermark(9)
    assert valve.end(0) == (IDLE, None)
    assert valve.watermark(1, Watermark(END_OF_TIME)) is None
    assert valve.watermark(2, Watermark(END_OF_TIME)) == Watermark(END_OF_TIME)


def test_the_end_of_the_last_active_channel_waits_for_one_that_catches_up() -> None:
    valve = WatermarkValve(2)
    valve.status(1, IDLE)
    valve.watermark(0, Watermark(10))
    valve.status(1, ACTIVE)
    assert valve.watermark(1, Watermark(4)) is None
    assert valve.watermark(0, Watermark(END_OF_TIME)) is None
    assert valve.end(0) == (None, None)
    assert valve.watermark(1, Watermark(11)) == Watermark(11)


changes = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20) | st.sampled_from([IDLE, ACTIVE])), max_size=60
)


@given(changes)
def test_time_never_goes_back_and_never_passes_a_channel_that_has_counted_all_along(
    changes: list[tuple[int, int | StreamStatus]],
) -> None:
    valve = WatermarkValve(3)
    time, reached, ever_idle, statuses = -1, [-1] * 3, set(), []
    for channel, change in changes:
        if isinstance(change, int):
            reached[channel] = max(reached[channel], change)
            new = valve.watermark(channel, Watermark(change))
        else:
            if change is IDLE:
                ever_idle.add(channel)
            status, new = valve.status(channel, change)
            statuses += [status] if status is not None else []
        if new is not None:
            assert new.timestamp > time
            time = new.timestamp
            assert all(time <= reached[c] for c in range(3) if c not in ever_idle)
            assert time <= max(reached)
    assert statuses == [ACTIVE if i % 2 else IDLE for i in range(len(statuses))]


@given(changes)
def test_time_is_the_smallest_watermark_while_nobody_is_idle(
    changes: list[tuple[int, int | StreamStatus]],
) -> None:
    valve, reached, time = WatermarkValve(3), [-1] * 3, -1
    for channel, change in changes:
        if isinstance(change, int):
            reached[channel] = max(reached[channel], change)
            new = valve.watermark(channel, Watermark(change))
            time = time if new is None else new.timestamp
    assert time == min(reached)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.permutations(range(3)), st.booleans())
def test_when_all_channels_are_idle_the_fastest_counts_whichever_became_idle_first(
    reached: list[int], order: list[int], comes_back: bool
) -> None:
    valve, time = WatermarkValve(3), -1
    for channel, timestamp in enumerate(reached):
        new = valve.watermark(channel, Watermark(timestamp))
        time = time if new is None else new.timestamp
    back = [(channel, status) for channel in order[:2] for status in (ACTIVE, IDLE)] if comes_back else []
    for channel, status in [*((channel, IDLE) for channel in order[:2]), *back, (order[2], IDLE)]:
        new = valve.status(channel, status)[1]
        time = time if new is None else new.timestamp
    assert time == max(reached)


@given(
    st.lists(st.integers(0, 20), min_size=3, max_size=3),
    st.permutations(range(3)),
    st.sets(st.integers(0, 2), max_size=2),
)
def test_when_all_channels_are_idle_or_have_ended_the_order_does_not_matter(
    reached: list[int], order: list[int], ending: set[int]
) -> None:
    valve, times = WatermarkValve(3), [-1]
    told = [valve.watermark(channel, Watermark(timestamp)) for channel, timestamp in enumerate(reached)]
    for channel in order:
        if channel in ending:
            told.append(valve.watermark(channel, Watermark(END_OF_TIME)))
            told.append(valve.end(channel)[1])
        else:
            told.append(valve.status(channel, IDLE)[1])
    times += [new.timestamp for new in told if new is not None]
    assert times == sorted(set(times))
    assert times[-1] == max(reached)


@given(changes)
@example([(0, 10), (1, 5), (2, 20), (2, IDLE), (1, IDLE), (1, ACTIVE), (0, IDLE), (1, IDLE)])
def test_while_all_channels_are_idle_time_is_that_of_the_fastest(
    changes: list[tuple[int, int | StreamStatus]],
) -> None:
    valve, time, reached, idle = WatermarkValve(3), -1, [-1] * 3, [False] * 3
    for channel, change in changes:
        if isinstance(change, int):
            reached[channel] = max(reached[channel], change)
            new = valve.watermark(channel, Watermark(change))
        else:
            idle[channel] = change is IDLE
            new = valve.status(channel, change)[1]
        time = time if new is None else new.timestamp
        if all(idle):
            assert time == max(reached)


ENDING = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20) | st.sampled_from([IDLE, ACTIVE, "end"])), max_size=60
)


@given(ENDING)
def test_time_is_at_its_end_when_all_channels_are_and_not_before(
    changes: list[tuple[int, int | StreamStatus | str]],
) -> None:
    valve, ended, latest, idle = WatermarkValve(3), set[int](), None, {0: False, 1: False, 2: False}
    statuses = []
    for channel, change in changes:
        if channel in ended:
            continue
        if isinstance(change, int):
            new = valve.watermark(channel, Watermark(change))
        elif isinstance(change, StreamStatus):
            idle[channel] = change is IDLE
            status, new = valve.status(channel, change)
            statuses += [status] if status is not None else []
        else:
            new = valve.watermark(channel, Watermark(END_OF_TIME))
            ended.add(channel)
            if len(ended) < 3:
                status, more = valve.end(channel)
                statuses += [status] if status is not None else []
                assert more is None, "the end of event time came in front of the end of the data"
        latest = latest if new is None else new
        assert (latest == Watermark(END_OF_TIME)) is (len(ended) == 3)
        if len(ended) < 3:
            going_on = [idle[c] for c in range(3) if c not in ended]
            assert (bool(statuses) and statuses[-1] is IDLE) is all(going_on)
