"""Open windows and event time in snapshots: they come back, at any parallelism."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from window_setup import applied, pushed, summed, tell

from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.testing.harness import HarnessSnapshot, OperatorHarness

pytestmark = pytest.mark.usefixtures("either_backend")


def keys_of(index: int, parallelism: int, how_many: int = 3) -> list[str]:
    """Some keys that belong to one subtask."""
    with OperatorHarness(summed(), subtask=index, parallelism=parallelism) as harness:
        return [key for key in map(str, range(1000)) if harness.owns(key)][:how_many]


def test_open_windows_and_how_far_event_time_was_come_back() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 5), ("a", 2, 15), ("b", 3, 25))
        harness.push_watermark(12)
        saved = harness.snapshot()
    with OperatorHarness(summed(), restored=[saved]) as harness:
        pushed(harness, ("a", 10, 16), ("a", 7, 9))
        assert harness.side_output(LATE_RECORDS) == [("a", 7)]
        assert harness.push_watermark(19) == [("a", 12)]
        assert harness.push_watermark(29) == [("b", 3)]


def test_sources_that_begin_anew_with_lower_watermarks_do_not_take_event_time_back() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 15))
        assert harness.push_watermark(25) == [("a", 1)]
        saved = harness.snapshot()
    with OperatorHarness(summed(), restored=[saved]) as harness:
        assert harness.push_watermark(3) == []
        pushed(harness, ("a", 1, 16))
        assert harness.side_output(LATE_RECORDS) == [("a", 1)]
        assert harness.push_watermark(END_OF_TIME) == []


def test_the_end_of_a_drained_job_makes_nothing_late_for_the_one_that_goes_on() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 5))
        assert harness.push_watermark(END_OF_TIME) == [("a", 1)]
        saved = harness.snapshot()
    with OperatorHarness(summed(), restored=[saved]) as harness:
        pushed(harness, ("a", 2, 6), ("a", 3, 17))
        assert harness.side_output(LATE_RECORDS) == []
        assert harness.push_watermark(END_OF_TIME) == [("a", 2), ("a", 3)]


def snapshots_of_two(watermarks: tuple[int | None, int | None]) -> tuple[list[HarnessSnapshot], list[str]]:
    """Two subtasks with a window of each of their keys at 50, at two moments of event time."""
    saved, keys = [], []
    for index, watermark in enumerate(watermarks):
        with OperatorHarness(summed(), subtask=index, parallelism=2) as harness:
            own = keys_of(index, 2)
            pushed(harness, *((key, 1, 55) for key in own))
            if watermark is not None:
                harness.push_watermark(watermark)
            saved.append(harness.snapshot(1))
            keys += own
    return saved, keys


@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_windows_go_with_their_keys_to_another_parallelism(parallelism: int) -> None:
    saved, keys = snapshots_of_two((30, 40))
    fired: list[Any] = []
    for index in range(parallelism):
        with OperatorHarness(summed(), subtask=index, parallelism=parallelism, restored=saved) as harness:
            own = [key for key in keys if harness.owns(key)]
            pushed(harness, *((key, 10, 51) for key in own))
            fired += harness.push_watermark(59)
    assert Counter(fired) == Counter((key, 11) for key in keys)


def late_at(saved: list[HarnessSnapshot], stamp: int, *, subtask: int = 0, parallelism: int = 1) -> bool:
    with OperatorHarness(summed(), subtask=subtask, parallelism=parallelism, restored=saved) as harness:
        pushed(harness, (keys_of(subtask, parallelism)[0], 1, stamp))
        return harness.side_output(LATE_RECORDS) != []


def test_each_subtask_goes_on_from_its_own_watermark() -> None:
    saved, _ = snapshots_of_two((30, 40))
    assert [late_at(saved, 35, subtask=i, parallelism=2) for i in range(2)] == [False, True]
    assert [late_at(saved, 29, subtask=i, parallelism=2) for i in range(2)] == [True, True]


def test_at_another_parallelism_the_lowest_watermark_counts() -> None:
    saved, _ = snapshots_of_two((30, 40))
    assert not late_at(saved, 30)
    assert late_at(saved, 29)


def test_at_another_parallelism_nothing_is_late_if_one_subtask_had_no_watermark() -> None:
    saved, _ = snapshots_of_two((None, 40))
    assert not late_at(saved, -1000)


def test_at_another_parallelism_a_subtask_at_the_end_of_time_does_not_count() -> None:
    saved, _ = snapshots_of_two((40, END_OF_TIME))
    assert late_at(saved, 39)
    assert not late_at(saved, 40)


def test_a_snapshot_holds_only_the_keys_that_changed_and_those_that_are_gone() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, *((str(key), 1, 5) for key in range(20)), ("late", 1, 15))
        base = harness.snapshot()
        harness.complete_checkpoint(base)
        pushed(harness, ("late", 1, 16))
        changed = harness.snapshot()
        harness.complete_checkpoint(changed)
        harness.push_watermark(9)
        fired = harness.snapshot()
    assert base.keyed is not None
    assert changed.keyed is not None
    assert fired.keyed is not None
    assert changed.keyed.entries == base.keyed.entries + 1
    with OperatorHarness(summed(), restored=[changed]) as harness:
        fired_later = harness.push_watermark(END_OF_TIME)
        assert sorted(fired_later) == sorted([*((str(key), 1) for key in range(20)), ("late", 2)])
    with OperatorHarness(summed(), restored=[fired]) as harness:
        assert harness.push_watermark(END_OF_TIME) == [("late", 2)]


def test_a_snapshot_is_not_changed_by_what_comes_after_it() -> None:
    with OperatorHarness(applied(tell)) as harness:
        pushed(harness, ("a", 1, 5))
        saved = harness.snapshot()
        pushed(harness, ("a", 2, 6))
    with OperatorHarness(applied(tell), restored=[saved]) as harness:
        assert harness.push_watermark(9) == [("a", 0, [1])]
