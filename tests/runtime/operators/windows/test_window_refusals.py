"""Arguments that windows refuse: the error names the function, the record, or what to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from window_setup import TEN, add, applied, first, pushed, summed, tell

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.functions.record_functions import MapBatchesOperator
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ReducedContents
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

pytestmark = pytest.mark.usefixtures("either_backend")


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


def test_who_lost_timestamps_in_map_batches_is_told_when_it_keeps_them() -> None:
    with OperatorHarness(MapBatchesOperator(lambda rows: rows[1:])) as before:
        before.push([("a", 1), ("a", 2)], [1, 2])
        (batch,) = before.batches
    with (
        OperatorHarness(summed()) as harness,
        pytest.raises(OperatorError, match=r"only if its function returns one batch as long as"),
    ):
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


@pytest.mark.parametrize("key", [[1], float("nan"), object()])
def test_a_key_that_can_not_be_one_is_the_fault_of_the_key_selector(key: Any) -> None:
    with (
        OperatorHarness(summed()) as harness,
        pytest.raises(OperatorError, match=r"key_by function first .*can't be a key: .*on record \(.*, 77\)"),
    ):
        harness.push([("a", 1), (key, 77), ("b", 1)], [1, 1, 1])


def test_an_unhashable_key_of_a_late_record_is_the_fault_of_the_key_selector() -> None:
    with OperatorHarness(summed()) as harness:
        harness.push_watermark(100)
        with pytest.raises(OperatorError, match=r"key_by function first .*\[1\] of type list can't be a key"):
            harness.push([("a", 1), ([1], 77)], [1, 1])


def confused(a: Any, b: Any) -> Any:
    return a + 1


def test_a_type_error_of_the_window_function_is_not_the_fault_of_the_key_selector() -> None:
    operator = WindowOperator(first, TEN, partial(ReducedContents, confused))
    with (
        OperatorHarness(operator) as harness,
        pytest.raises(OperatorError, match=r"window function confused .*TypeError: can only concatenate"),
    ):
        pushed(harness, ("a", 1, 1), ("a", 2, 1))


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


def sliding(offset: float = 0) -> WindowOperator:
    return summed(SlidingEventTimeWindows(size=1e-5, slide=5e-6, offset=offset))


def tumbling(size: float = 1e-5, offset: float = 0) -> WindowOperator:
    return summed(TumblingEventTimeWindows(size, offset))


@pytest.mark.parametrize(
    ("before", "changed", "message"),
    [
        (tumbling, lambda: tumbling(2e-5), r"are 0:00:00\.000010 long.*windows are 0:00:00\.000020 long"),
        (tumbling, lambda: applied(tell), r"keep a reduced value.* are 0:00:00\.000010 long.* all records"),
        (tumbling, sliding, r"begin every 0:00:00\.000010 .* begin every 0:00:00\.000005 "),
        (sliding, tumbling, r"begin every 0:00:00\.000005 .* begin every 0:00:00\.000010 "),
        (tumbling, lambda: tumbling(offset=3e-6), r"offset 0:00:00 .* offset 0:00:00\.000003 and"),
        (sliding, lambda: sliding(offset=7e-6), r"offset 0:00:00 .* offset 0:00:00\.000002 and"),
    ],
)
def test_open_windows_of_another_shape_are_refused(
    before: Callable[[], WindowOperator], changed: Callable[[], WindowOperator], message: str
) -> None:
    with OperatorHarness(before()) as harness:
        pushed(harness, ("a", 1, 1))
        saved = harness.snapshot()
        harness.push_watermark(19)
        fired = harness.snapshot()
    with pytest.raises(OperatorError, match=message):
        OperatorHarness(changed(), restored=[saved])
    with OperatorHarness(changed(), restored=[fired]) as harness:  # none is open: nothing can be mistaken
        pushed(harness, ("a", 1, 20))
        assert len(harness.push_watermark(END_OF_TIME)) >= 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tumbling, lambda: tumbling(offset=1e-5)),
        (sliding, lambda: sliding(offset=5e-6)),
        (lambda: sliding(offset=-2e-6), lambda: sliding(offset=3e-6)),
        (tumbling, lambda: summed(Unsaid())),
        (lambda: summed(Unsaid()), tumbling),
    ],
)
def test_windows_that_begin_where_the_restored_ones_did_are_accepted(
    before: Callable[[], WindowOperator], after: Callable[[], WindowOperator]
) -> None:
    with OperatorHarness(before()) as harness:
        pushed(harness, ("a", 1, 11))
        open_windows = harness.state("windows")
        saved = harness.snapshot()
    with OperatorHarness(after(), restored=[saved]) as harness:
        pushed(harness, ("a", 1, 12))
        assert harness.state("windows")["a"] == dict.fromkeys(open_windows["a"], ("a", 2))


class Unsaid:
    """Windows of ten that don't say where they begin."""

    size = 10

    def starts(self, timestamp: int) -> tuple[int, ...]:
        return (timestamp - timestamp % 10,)


def test_a_snapshot_that_knows_size_and_contents_alone_is_read() -> None:
    with OperatorHarness(sliding()) as harness:
        pushed(harness, ("a", 1, 1))
        saved = harness.snapshot()
    mode, _ = saved.lists["shape"]
    kept = ValueCodec().dumps((10, "a reduced value"))
    older = replace(saved, lists={**saved.lists, "shape": (mode, (kept,))})
    with OperatorHarness(sliding(), restored=[older]) as harness:
        assert harness.push_watermark(END_OF_TIME) == [("a", 1), ("a", 1)]
    with pytest.raises(
        OperatorError, match=r"are 0:00:00\.000010 long and keep a reduced value\. This program"
    ):
        OperatorHarness(tumbling(2e-5), restored=[older])
