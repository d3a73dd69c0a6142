"""Many windows that one watermark fires: they fire some at a time, and a checkpoint may come in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from window_setup import SLIDING, TEN, applied, pushed, summed, tell

from penstock.runtime.operators import held_watermark
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.held_watermark import MOST_FIRED
from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark
from penstock.runtime.testing.harness import HarnessSnapshot, OperatorHarness

Item = tuple[str, int, int]
KEYS = [f"key {n}" for n in range(12)]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three windows are a slice."""
    monkeypatch.setattr(held_watermark, "MOST_FIRED", 3)


def flushed(harness: OperatorHarness) -> list[Any]:
    """The rest, slice by slice, up to the watermark."""
    rows = []
    while harness._operator.flush_at is not None:
        rows += harness.flush()
    return rows


def stamps(harness: OperatorHarness) -> list[int]:
    return [stamp for batch in harness.batches for stamp in batch.timestamps or ()]


@pytest.mark.usefixtures("either_backend", "three")
def test_a_storm_of_windows_lets_a_checkpoint_through() -> None:
    expected = [(key, 0, [n, n]) for n, key in enumerate(KEYS)]
    with OperatorHarness(applied(tell)) as harness:
        pushed(harness, *((key, n, 5) for n, key in enumerate(KEYS) for _ in range(2)))
        assert harness.push_watermark(9) == expected[:3]
        assert harness.watermarks == ()
        saved = harness.snapshot()
        assert harness.flush() == expected[3:6]
        assert flushed(harness) == expected[6:]
        assert harness.watermarks == (9,)
        assert harness.state("windows") == {}
    with OperatorHarness(applied(tell), restored=[saved]) as harness:
        again = flushed(harness)
        assert harness.watermarks == (), "the one that was held comes again, or another one does"
        pushed(harness, (KEYS[0], 1, 5))
        assert harness.side_output(LATE_RECORDS) == [(KEYS[0], 1)], "it has fired"
        assert harness.push_watermark(9) == []
        assert harness.watermarks == (9,)
        assert sorted(again) == sorted(expected[3:])


@pytest.mark.usefixtures("three")
def test_a_storm_goes_on_from_the_earliest_end_whatever_key_it_is_of() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("b", 1, 25), ("a", 2, 5), ("b", 3, 5), ("c", 4, 15), ("a", 5, 15), ("c", 6, 35))
        assert harness.push_watermark(29) == [("a", 2), ("b", 3), ("c", 4)]
        assert stamps(harness) == [9, 9, 19]
        assert flushed(harness) == [("a", 5), ("b", 1)]
        assert stamps(harness)[3:] == [19, 29]
        assert harness.watermarks == (29,)
        assert harness.push_watermark(39) == [("c", 6)]


def test_records_behind_a_held_watermark_come_behind_what_it_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_watermark, "MOST_FIRED", 1)
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 5), ("b", 2, 5), ("c", 3, 5))
        assert harness.push_watermark(9) == [("a", 1)]
        assert pushed(harness, ("c", 4, 5), ("c", 5, 15)) == [("b", 2), ("c", 3)]
        assert harness.watermarks == (9,)
        assert harness.side_output(LATE_RECORDS) == [("c", 4)]
        assert harness.push_watermark(19) == [("c", 5)]


@pytest.mark.usefixtures("three")
def test_a_watermark_that_comes_while_another_one_is_held_takes_its_place() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, *((key, 1, 5) for key in KEYS))
        fired = [*harness.push_watermark(9), *harness.push_watermark(12), *flushed(harness)]
        assert fired == [(key, 1) for key in KEYS]
        assert harness.watermarks == (12,)


@pytest.mark.usefixtures("three")
def test_an_input_that_becomes_idle_waits_for_the_storm() -> None:
    operator = summed()
    with OperatorHarness(operator) as harness:
        pushed(harness, *((key, 1, 5) for key in KEYS))
        fired = harness.push_watermark(9)
        *left, watermark = operator.process_status(StreamStatus.IDLE)
        assert (len(fired), [len(batch) for batch in left], watermark) == (3, [3, 3, 3], Watermark(9))
        assert not operator.holds_watermark


@pytest.mark.usefixtures("three")
def test_the_end_of_time_is_not_held() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, *((key, 1, 5) for key in KEYS))
        assert len(harness.push_watermark(END_OF_TIME)) == len(KEYS)
        assert harness.watermarks == (END_OF_TIME,)


def test_a_storm_as_large_as_life_is_sliced() -> None:
    count = 3 * MOST_FIRED + 1
    with OperatorHarness(summed()) as harness:
        harness.push([(n, n) for n in range(count)], [5] * count)
        assert len(harness.push_watermark(9)) == MOST_FIRED
        slices = []
        while not harness.watermarks:
            slices.append(len(harness.flush()))
        assert slices == [MOST_FIRED, MOST_FIRED, 1]


items = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9), st.integers(0, 49)), max_size=30)


def expected_of(records: list[Item], size: int, slide: int) -> list[tuple[str, int, int]]:
    """Key, start and sum of all windows, found one by one."""
    sums = {}
    for key, value, stamp in records:
        for start in range(stamp - stamp % slide, stamp - size, -slide):
            sums[key, start] = sums.get((key, start), 0) + value
    return sorted((*window, total) for window, total in sums.items())


@pytest.mark.parametrize("windows", [TEN, SLIDING], ids=["tumbling", "sliding"])
@pytest.mark.usefixtures("either_backend")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=items,
    watermark=st.integers(0, 60),
    slices=st.integers(0, 5),
    most=st.integers(1, 4),
    parallelism=st.integers(1, 3),
)
def test_a_snapshot_between_two_slices_loses_and_doubles_nothing(
    windows: Any, records: list[Item], watermark: int, slices: int, most: int, parallelism: int
) -> None:
    def total(key: str, window: Any, records: list[tuple[str, int]]) -> list[Any]:
        return [(key, window.start_timestamp, sum(value for _, value in records))]

    def run(saved: list[HarnessSnapshot], subtask: int) -> list[Any]:
        operator = applied(total, windows)
        with OperatorHarness(operator, restored=saved, subtask=subtask, parallelism=parallelism) as harness:
            rows = flushed(harness)
            rows += harness.push_watermark(watermark)
            rows += flushed(harness)
            return rows + harness.push_watermark(END_OF_TIME)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_watermark, "MOST_FIRED", most)
        with OperatorHarness(applied(total, windows)) as harness:
            pushed(harness, *records)
            before = harness.push_watermark(watermark)
            for _ in range(slices):
                before += harness.flush()
            saved = [harness.snapshot()]
            went_on = before + flushed(harness) + harness.push_watermark(END_OF_TIME)
        restored = before + [row for subtask in range(parallelism) for row in run(saved, subtask)]
    expected = expected_of(records, 10, 10 if windows is TEN else 5)
    assert sorted(went_on) == expected
    assert sorted(restored) == expected
