"""Records behind their windows: they go to a side output and are counted, and nothing else does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from window_setup import SLIDING, TEN, UNEVEN, applied, pushed, summed

from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.windows.window import WINDOW_STATE
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import WindowAssigner

pytestmark = pytest.mark.usefixtures("either_backend")


def test_a_record_behind_its_window_goes_to_the_side_and_is_counted() -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 5))
        harness.push_watermark(9)
        pushed(harness, ("a", 2, 9), ("a", 3, 10), ("b", 4, 0))
        assert harness.side_output(LATE_RECORDS) == [("a", 2), ("b", 4)]
        assert harness.statistics().extra == {LATE_RECORDS: 2}
        assert harness.push_watermark(19) == [("a", 3)]


def test_an_old_record_is_not_late_while_its_window_is_open() -> None:
    with OperatorHarness(summed()) as harness:
        harness.push_watermark(8)
        pushed(harness, ("a", 1, 0))
        assert harness.push_watermark(9) == [("a", 1)]
        assert harness.side_output(LATE_RECORDS) == []


def test_a_record_of_several_windows_is_late_only_when_all_of_them_have_fired() -> None:
    with OperatorHarness(summed(SLIDING)) as harness:
        harness.push_watermark(9)
        pushed(harness, ("a", 1, 7), ("a", 5, 4))
        assert harness.side_output(LATE_RECORDS) == [("a", 5)]
        assert harness.push_watermark(14) == [("a", 1)]


def test_a_window_that_has_fired_is_not_opened_again_by_a_lower_watermark() -> None:
    with OperatorHarness(summed()) as harness:
        harness.push_watermark(25)
        harness.push_watermark(5)
        pushed(harness, ("a", 1, 15))
        assert harness.side_output(LATE_RECORDS) == [("a", 1)]


def test_a_record_that_belongs_to_no_window_at_all_is_late() -> None:
    class Never:
        size = 10

        def starts(self, timestamp: int) -> Sequence[int]:
            return ()

    with OperatorHarness(summed(Never())) as harness:
        pushed(harness, ("a", 1, 1))
        assert harness.side_output(LATE_RECORDS) == [("a", 1)]
        assert harness.state(WINDOW_STATE) == {}


class Own:
    """A user's assigner: it does not say how often windows begin, and leaves gaps."""

    size = 10

    def starts(self, timestamp: int) -> Sequence[int]:
        return [start for start in SLIDING.starts(timestamp) if start % 3]


RECORDS = st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(-30, 60))
STEPS = st.lists(st.lists(RECORDS, max_size=6) | st.integers(-30, 60), max_size=20)


@example(steps=[[("a", 1, 9), ("a", 1, 10)]], windows=UNEVEN)  # a window ends where none begins
@given(steps=STEPS, windows=st.sampled_from([TEN, SLIDING, UNEVEN, Own()]))
def test_each_window_of_each_key_is_whole_but_for_what_was_late(
    steps: list[list[tuple[str, int, int]] | int], windows: WindowAssigner
) -> None:
    reached, expected, late = -100, Counter[tuple[str, int]](), []
    fired: Counter[tuple[str, int]] = Counter()
    with OperatorHarness(
        applied(lambda k, w, rows: [(k, w.start_timestamp, sum(n for _, n in rows))], windows)
    ) as h:
        for step in steps:
            if isinstance(step, int):
                reached = max(reached, step)
                h.push_watermark(step)
                continue
            pushed(h, *step)
            for key, value, stamp in step:
                starts = [start for start in windows.starts(stamp) if start + windows.size - 1 > reached]
                for start in starts:
                    expected[key, start] += value
                if not starts:
                    late.append((key, value))
        h.push_watermark(END_OF_TIME)
        for key, start, total in h.outputs:
            assert (key, start) not in fired
            fired[key, start] = total
        assert fired == expected
        assert h.side_output(LATE_RECORDS) == late
        stamps = [stamp for batch in h.batches for stamp in batch.timestamps or ()]  # type: ignore[union-attr]
        assert [start + windows.size - 1 for _, start, _ in h.outputs] == stamps
