"""Windows of keyed records: each key's window fires once, whole, when event time has passed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from left_behind import rows_left
from window_setup import SLIDING, TEN, add, applied, first, pushed, summed, tell

from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.windows.window import WINDOW_STATE, WindowOperator
from penstock.runtime.operators.windows.window_contents import ReducedContents, WindowContents
from penstock.runtime.record.elements import END_OF_TIME, RowBatch
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import TimeWindow, TumblingEventTimeWindows, WindowAssigner

pytestmark = pytest.mark.usefixtures("either_backend")


def test_a_window_fires_once_when_event_time_reaches_its_last_microsecond() -> None:
    with OperatorHarness(summed()) as harness:
        assert pushed(harness, ("a", 1, 0), ("b", 5, 3), ("a", 2, 9), ("a", 4, 10)) == []
        assert harness.push_watermark(8) == []
        assert harness.push_watermark(9) == [("a", 3), ("b", 5)]
        assert harness.push_watermark(10) == []
        assert harness.push_watermark(END_OF_TIME) == [("a", 4)]
        assert harness.state(WINDOW_STATE) == {}


def test_what_a_window_emits_has_its_last_microsecond_as_timestamp() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 0), ("b", 1, 2), ("a", 1, 11))
        harness.push_watermark(19)
        assert harness.batches == (RowBatch([("a", 1), ("b", 1), ("a", 1)], [9, 9, 19]),)
        assert harness.watermarks == (19,)


def test_windows_fire_the_earliest_first_however_their_records_came() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 3, 35), ("a", 1, 15), ("a", 2, 25), ("a", 0, -5))
        assert harness.push_watermark(100) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]


def test_a_record_in_several_windows_counts_in_each() -> None:
    with OperatorHarness(summed(SLIDING)) as harness:
        pushed(harness, ("a", 1, 2), ("a", 10, 7))
        assert harness.push_watermark(4) == [("a", 1)]
        assert harness.push_watermark(9) == [("a", 11)]
        assert harness.push_watermark(14) == [("a", 10)]


class OddOnly(TumblingEventTimeWindows):
    """Leaves even moments out."""

    def starts(self, timestamp: int) -> tuple[int, ...]:
        return super().starts(timestamp) if timestamp % 2 else ()


def test_a_class_with_starts_of_its_own_is_asked_for_every_record() -> None:
    with OperatorHarness(summed(OddOnly(1e-5))) as harness:
        pushed(harness, ("a", 1, 1), ("a", 20, 2), ("a", 300, 3))
        assert harness.push_watermark(9) == [("a", 301)]
        assert harness.side_output(LATE_RECORDS) == [("a", 20)]


def test_apply_sees_key_window_and_records_in_the_order_of_their_coming() -> None:
    with OperatorHarness(applied(tell)) as harness:
        pushed(harness, ("a", 3, 9), ("b", 7, 1), ("a", 1, 2))
        assert harness.push_watermark(9) == [("a", 0, [3, 1]), ("b", 0, [7])]


def test_a_generator_of_apply_that_never_ends_comes_out_bit_by_bit() -> None:
    def forever(key: str, window: TimeWindow, records: list[Any]) -> Iterable[int]:
        n = 0
        while True:
            yield n
            n += 1

    with OperatorHarness(applied(forever)) as harness:
        pushed(harness, ("a", 1, 1))
        drained = harness.push_watermark(9, stop_after=10_000)
        assert drained[:3] == [0, 1, 2]
        assert len(drained) >= 10_000


def test_apply_may_emit_nothing_and_the_window_is_forgotten_all_the_same() -> None:
    with OperatorHarness(applied(lambda key, window, records: None)) as harness:
        pushed(harness, ("a", 1, 1), ("b", 1, 1))
        assert harness.push_watermark(9) == []
        assert harness.state(WINDOW_STATE) == {}
        assert harness.snapshot().keyed is not None


def test_windows_need_no_watermark_between_records_and_keys_may_be_many() -> None:
    with OperatorHarness(summed()) as harness:
        for stamp in range(100):
            pushed(harness, *((str(key), 1, stamp) for key in range(50)))
        fired = harness.push_watermark(99)
        assert Counter(fired) == Counter({(str(key), 10): 10 for key in range(50)})
        assert harness.statistics().records_in == 5000
        assert harness.statistics().records_out == 500


def test_contents_are_made_anew_for_each_subtask() -> None:
    made: list[WindowContents] = []

    def contents() -> WindowContents:
        made.append(ReducedContents(add))
        return made[-1]

    WindowOperator(first, TEN, contents)
    WindowOperator(first, TEN, contents)
    assert len({id(each) for each in made}) == 2


@pytest.mark.parametrize("windows", [TEN, SLIDING], ids=["tumbling", "sliding"])
def test_windows_that_have_ended_leave_nothing_behind(windows: WindowAssigner) -> None:
    operator = summed(windows)
    with OperatorHarness(operator) as harness:
        total, part = (5_000 if windows is SLIDING else 10_000), 2_500  # a record is in two that slide
        for number in range(0, total, part):
            many = range(number, number + part)
            harness.push([(f"key {each}", each) for each in many], [10 * each for each in many])
            assert rows_left(harness) >= part
            harness.push_watermark(10 * (number + part) - 10)
            harness.flush()
        harness.push_watermark(END_OF_TIME - 1)
        while operator.holds_watermark:
            harness.flush()
        assert len(harness.outputs) == 10_000
        assert harness.state(WINDOW_STATE) == {}
        assert rows_left(harness) == 0
        ends = operator._ends
        assert (ends._ends, ends._keys, len(ends._left)) == ([], {}, 0)
