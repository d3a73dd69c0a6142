"""Windows of keyed records: each key's window fires once, whole, when event time has passed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.keyed_reduce import KeyedReduceOperator
from penstock.runtime.operators.window import LATE_RECORDS, WINDOW_STATE, WindowOperator
from penstock.runtime.operators.window_contents import ListedContents, ReducedContents, WindowContents
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, RowBatch
from penstock.runtime.testing.harness import HarnessSnapshot, OperatorHarness
from penstock.runtime.time.windows import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowAssigner,
)

TEN = TumblingEventTimeWindows(1e-5)  # ten microseconds: timestamps in these tests are small numbers
SLIDING = SlidingEventTimeWindows(size=1e-5, slide=5e-6)
UNEVEN = SlidingEventTimeWindows(size=1e-5, slide=3e-6)


def first(pair: Any) -> Any:
    return pair[0]


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def summed(windows: WindowAssigner = TEN) -> WindowOperator:
    return WindowOperator(first, windows, partial(ReducedContents, add))


def applied(function: Callable[..., Any], windows: WindowAssigner = TEN) -> WindowOperator:
    return WindowOperator(first, windows, partial(ListedContents, function))


def tell(key: str, window: TimeWindow, records: list[tuple[str, int]]) -> list[Any]:
    return [(key, window.start, [value for _, value in records])]


def pushed(harness: OperatorHarness, *records: tuple[str, int, int]) -> list[Any]:
    """Push records of key, value and timestamp."""
    return harness.push([(key, value) for key, value, _ in records], [stamp for *_, stamp in records])


# -- firing -------------------------------------------------------------------------------------------------


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
        assert harness.batches == (RowBatch([("a", 1), ("b", 1)], [9, 9]), RowBatch([("a", 1)], [19]))
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


# -- late records -------------------------------------------------------------------------------------------


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
    with OperatorHarness(applied(lambda k, w, rows: [(k, w.start, sum(n for _, n in rows))], windows)) as h:
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


# -- snapshots ----------------------------------------------------------------------------------------------


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


# -- what can't be ------------------------------------------------------------------------------------------


def test_records_without_timestamps_are_told_what_is_missing() -> None:
    with (
        OperatorHarness(summed()) as harness,
        pytest.raises(OperatorError, match=r"no timestamps.*call assign_timestamps_and_watermarks\(...\) b"),
    ):
        harness.push([("a", 1)])


def test_arrow_batches_have_no_timestamps_either() -> None:
    batch = ArrowBatch(pa.RecordBatch.from_pydict({"key": ["a"]}))
    with OperatorHarness(summed()) as harness, pytest.raises(OperatorError, match="no timestamps"):
        harness.push_batch(batch)


def test_an_empty_batch_needs_no_timestamps() -> None:
    with OperatorHarness(summed()) as harness:
        assert harness.push([]) == []


def fails(*_: Any) -> Any:
    msg = "as asked"
    raise ValueError(msg)


def stops(*_: Any) -> Any:
    raise StopIteration


def test_a_key_selector_that_fails_is_named_with_its_record() -> None:
    operator = WindowOperator(fails, TEN, partial(ReducedContents, add))
    with (
        OperatorHarness(operator) as harness,
        pytest.raises(
            OperatorError, match=r"key_by function fails .*ValueError: as asked.*on record \('a', 1\)"
        ),
    ):
        pushed(harness, ("a", 1, 1))


def test_a_reduce_function_that_fails_is_named_with_its_record() -> None:
    operator = WindowOperator(first, TEN, partial(ReducedContents, fails))
    with (
        OperatorHarness(operator) as harness,
        pytest.raises(OperatorError, match=r"window function fails .*as asked, at .*on record \('a', 2\)"),
    ):
        pushed(harness, ("a", 1, 1), ("b", 1, 1), ("a", 2, 1), ("b", 2, 2))


def test_an_apply_function_that_fails_is_named_and_no_record_is_blamed() -> None:
    with OperatorHarness(applied(fails)) as harness:
        pushed(harness, ("a", 1, 1))
        with pytest.raises(OperatorError, match=r"window function fails .*ValueError: as asked") as raised:
            harness.push_watermark(9)
    assert "on record" not in str(raised.value)


@pytest.mark.parametrize("function", [stops, lambda *_: "text", lambda *_: 5])
def test_an_apply_function_whose_result_is_none_is_not_passed_over(function: Callable[..., Any]) -> None:
    with OperatorHarness(applied(function)) as harness:
        pushed(harness, ("a", 1, 1))
        with pytest.raises(OperatorError, match="window function"):
            harness.push_watermark(9)


def test_a_reduce_function_that_stops_an_iteration_loses_no_record_in_silence() -> None:
    with (
        OperatorHarness(WindowOperator(first, TEN, partial(ReducedContents, stops))) as harness,
        pytest.raises(OperatorError, match="StopIteration"),
    ):
        pushed(harness, ("a", 1, 1), ("a", 2, 1))


def test_a_key_that_can_not_be_one_is_a_located_error() -> None:
    with (
        OperatorHarness(summed()) as harness,
        pytest.raises(OperatorError, match=r"unhashable type: 'list'.*on record \(\[1\], 1\)"),
    ):
        harness.push([([1], 1)], [1])


def yields(a: Any, b: Any) -> Any:
    yield a


@pytest.mark.parametrize(
    ("select", "function", "message"),
    [
        (first, yields, "window calls yields .* which yields"),
        (first, 5, "window needs a function, not int"),
        (yields, add, "key_by calls yields .* which yields"),
    ],
)
def test_functions_that_can_not_work_are_refused_before_the_first_record(
    select: Any, function: Any, message: str
) -> None:
    with pytest.raises(OperatorError, match=message):
        OperatorHarness(WindowOperator(select, TEN, partial(ReducedContents, function)))


def test_state_of_another_kind_of_operator_under_the_id_is_refused() -> None:
    with OperatorHarness(KeyedReduceOperator(first, add)) as harness:
        harness.push([("a", 1)])
        saved = harness.snapshot()
    with pytest.raises(OperatorError, match=r"holds 'reduce': it belonged to another kind .*new id"):
        OperatorHarness(summed(), restored=[saved])
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 1))
        saved = harness.snapshot()
    with pytest.raises(OperatorError, match=r"holds 'windows': it belonged to another kind .*new id"):
        OperatorHarness(KeyedReduceOperator(first, add), restored=[saved])


def twice() -> WindowOperator:
    return summed(TumblingEventTimeWindows(2e-5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            twice,
            r"0:00:00\.000010 long and keep a reduced value, those of this program are 0:00:00\.000020 long",
        ),
        (lambda: applied(tell), r"keep a reduced value.* are 0:00:00\.000010 long and keep all records"),
    ],
)
def test_open_windows_of_another_size_or_kind_are_refused(
    changed: Callable[[], WindowOperator], message: str
) -> None:
    with OperatorHarness(summed()) as harness:
        pushed(harness, ("a", 1, 1))
        saved = harness.snapshot()
        harness.push_watermark(9)
        fired = harness.snapshot()
    with pytest.raises(OperatorError, match=message):
        OperatorHarness(changed(), restored=[saved])
    with OperatorHarness(changed(), restored=[fired]) as harness:  # none is open: nothing can be mistaken
        pushed(harness, ("a", 1, 10))
        assert len(harness.push_watermark(END_OF_TIME)) == 1


def test_contents_are_made_anew_for_each_subtask() -> None:
    made: list[WindowContents] = []

    def contents() -> WindowContents:
        made.append(ReducedContents(add))
        return made[-1]

    WindowOperator(first, TEN, contents)
    WindowOperator(first, TEN, contents)
    assert len({id(each) for each in made}) == 2
