"""Windows of a timestamp."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.time.durations import micros_of
from penstock.runtime.time.windows import (
    GLOBAL_WINDOW,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowAssigner,
    slide_of,
)

TIMESTAMPS = st.integers(-(10**17), 10**17) | st.integers(-100, 100)
MICROS = st.integers(1, 10**12) | st.integers(1, 50)


def span(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


@given(timestamp=TIMESTAMPS, size=MICROS, data=st.data())
def test_a_tumbling_window_holds_its_timestamp_and_windows_stand_side_by_side(
    timestamp: int, size: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(-size, size))
    windows = TumblingEventTimeWindows(span(size), span(offset))
    (start,) = windows.starts(timestamp)
    assert start <= timestamp < start + size
    assert (start - offset) % size == 0
    assert windows.starts(start) == windows.starts(start + size - 1) == (start,)
    assert windows.starts(start - 1) == (start - size,)


@given(timestamp=TIMESTAMPS, slide=st.integers(1, 1000), extra=st.integers(0, 5000), data=st.data())
def test_sliding_windows_are_all_and_only_those_that_hold_the_timestamp(
    timestamp: int, slide: int, extra: int, data: st.DataObject
) -> None:
    size = slide + extra
    offset = data.draw(st.integers(-size, size))
    starts = SlidingEventTimeWindows(span(size), span(slide), span(offset)).starts(timestamp)
    first = timestamp - size + 1
    assert list(starts) == [start for start in range(first, timestamp + 1) if (start - offset) % slide == 0]
    assert len(starts) in (size // slide, -(-size // slide))


@given(timestamp=TIMESTAMPS, size=MICROS)
def test_windows_that_slide_by_their_size_tumble(timestamp: int, size: int) -> None:
    sliding = SlidingEventTimeWindows(span(size), span(size))
    assert sliding.starts(timestamp) == TumblingEventTimeWindows(span(size)).starts(timestamp)


def test_an_offset_makes_days_of_another_time_zone() -> None:
    tokyo = TumblingEventTimeWindows(timedelta(days=1), offset=timedelta(hours=-9))
    hour = 3_600_000_000
    assert tokyo.starts(micros_of(14 * hour)) == (-9 * hour,)
    assert tokyo.starts(micros_of(15 * hour)) == (15 * hour,)


def test_the_end_of_a_window_is_not_in_it() -> None:
    assert TimeWindow(0, 60).max_timestamp == 59


def test_windows_say_what_they_are() -> None:
    assert repr(TumblingEventTimeWindows(60)) == "TumblingEventTimeWindows(0:01:00)"
    assert repr(SlidingEventTimeWindows(60, 0.5)) == (
        "SlidingEventTimeWindows(0:01:00, every 0:00:00.500000)"
    )


def test_both_kinds_are_window_assigners() -> None:
    assert isinstance(TumblingEventTimeWindows(1), WindowAssigner)
    assert isinstance(SlidingEventTimeWindows(1, 1), WindowAssigner)


class OddOnly(TumblingEventTimeWindows):
    """Has starts of its own, and does not say how often its windows begin."""

    def starts(self, timestamp: int) -> tuple[int, ...]:
        return super().starts(timestamp) if timestamp % 2 else ()


class Own(WindowAssigner):
    """Derives from the protocol."""

    size = 10  # type: ignore[assignment]
    slide = 10

    def starts(self, timestamp: int) -> tuple[int, ...]:
        return (timestamp - timestamp % 10,)


def test_a_class_that_changes_where_windows_begin_does_not_inherit_how_often_they_do() -> None:
    assert slide_of(OddOnly(60)) is None
    assert slide_of(type("Odder", (OddOnly,), {})(60)) is None
    assert slide_of(Own()) == 10
    assert slide_of(type("Named", (SlidingEventTimeWindows,), {})(60, 20)) == 20_000_000


@pytest.mark.parametrize("size", [0, -1, "60", None])
def test_a_size_that_makes_no_sense_is_refused(size: float) -> None:
    with pytest.raises(ConfigurationError, match=r"size=.*: give a "):
        TumblingEventTimeWindows(size)
    with pytest.raises(ConfigurationError, match=r"size=.*: give a "):
        SlidingEventTimeWindows(size, 1)


@pytest.mark.parametrize("slide", [0, -5])
def test_a_slide_that_makes_no_sense_is_refused(slide: float) -> None:
    with pytest.raises(ConfigurationError, match=r"slide=.*: give a "):
        SlidingEventTimeWindows(60, slide)


def test_windows_with_gaps_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"0:00:05 that begin every 0:00:10 leave gaps; make the sl"):
        SlidingEventTimeWindows(size=5, slide=10)


def test_an_offset_of_more_than_a_window_backwards_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"offset=.*: give a finite duration of at least "):
        TumblingEventTimeWindows(60, offset=-61)


def test_a_window_has_times_for_people_and_timestamps_in_microseconds():
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    window = TimeWindow(1_714_564_800_000_000, 1_714_564_800_000_001)
    assert (window.start, window.end) == (noon, noon + timedelta(microseconds=1))
    assert window.start.tzinfo is UTC
    assert (window.start_timestamp, window.end_timestamp) == tuple(window)
    assert window.max_timestamp == window.start_timestamp
    assert pickle.loads(pickle.dumps(window)) == window
    assert repr(window) == "TimeWindow(2024-05-01 12:00:00+00:00, 2024-05-01 12:00:00.000001+00:00)"


def test_the_window_of_all_records_begins_and_ends_with_the_time_of_python():
    assert GLOBAL_WINDOW.start == datetime.min.replace(tzinfo=UTC)
    assert GLOBAL_WINDOW.end == datetime.max.replace(tzinfo=UTC)


def test_a_time_that_no_datetime_has_names_the_timestamp_and_the_unit():
    far = TimeWindow(0, 1_714_564_800_000_000_000)
    assert repr(far) == "TimeWindow(0, 1714564800000000000)"
    with pytest.raises(PenstockError, match=r"timestamp 1714564800000000000 .* check the unit"):
        far.end.isoformat()
