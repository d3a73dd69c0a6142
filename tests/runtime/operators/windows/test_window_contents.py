"""The records that windows keep, and their results."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.functions.keyed_folds import AggregatedContents, AggregateFunction
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ListedContents, ReducedContents
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import SlidingEventTimeWindows, TimeWindow, TumblingEventTimeWindows

pytestmark = pytest.mark.usefixtures("either_backend")

TEN = TumblingEventTimeWindows(1e-5)
WINDOW = TimeWindow(0, 10)


class Mean(AggregateFunction[float, list[float], float]):
    """Changes its accumulator in place; fails as asked."""

    def __init__(self, fail_in: str = "") -> None:
        self.fail_in = fail_in
        self.made: list[list[float]] = []

    def _maybe_fail(self, method: str) -> None:
        if method == self.fail_in:
            msg = f"{method} as asked"
            raise ValueError(msg)

    def create_accumulator(self) -> list[float]:
        self._maybe_fail("create")
        self.made.append([0.0, 0])
        return self.made[-1]

    def add(self, value: float, accumulator: list[float]) -> list[float]:
        self._maybe_fail("add")
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[float]) -> float:
        self._maybe_fail("result")
        return accumulator[0] / accumulator[1]


def parity(value: float) -> int:
    return int(value) % 2


def means(function: AggregateFunction[Any, Any, Any]) -> WindowOperator:
    return WindowOperator(parity, TEN, partial(AggregatedContents, function))


def test_reduced_contents_keep_one_value() -> None:
    contents = ReducedContents(max)
    assert contents.first(1) == 1
    assert contents.add(1, 5) == 5
    assert contents.results("key", WINDOW, 5) == [5]


def test_a_reduced_value_may_be_none() -> None:
    contents = ReducedContents(lambda a, b: None)
    assert contents.results("key", WINDOW, contents.add(contents.first(None), 1)) == [None]


def adds_in_place(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    a["n"] += b["n"]
    return a


def test_a_reduce_function_may_change_a_record_of_other_windows() -> None:
    windows = SlidingEventTimeWindows(size=1e-5, slide=5e-6)
    operator = WindowOperator(lambda row: 0, windows, partial(ReducedContents, adds_in_place))
    with OperatorHarness(operator) as harness:
        harness.push([{"n": 1}, {"n": 2}, {"n": 4}], [7, 7, 12])
        assert harness.push_watermark(100) == [{"n": 3}, {"n": 7}, {"n": 4}]


def test_listed_contents_keep_all_records_in_order() -> None:
    contents = ListedContents(lambda key, window, records: [(key, window, *records)])
    kept = contents.add(contents.first(3), 1)
    assert contents.results("key", WINDOW, kept) == [("key", WINDOW, 3, 1)]


def test_aggregated_contents_emit_the_accumulators_result() -> None:
    with OperatorHarness(means(Mean())) as harness:
        harness.push([1.0, 2.0, 5.0, 6.0, 6.0], [1, 2, 3, 4, 15])
        assert harness.push_watermark(100) == [3.0, 4.0, 6.0]


def test_each_window_has_an_accumulator_of_its_own() -> None:
    windows = SlidingEventTimeWindows(size=1e-5, slide=5e-6)
    operator = WindowOperator(parity, windows, partial(AggregatedContents, Mean()))
    with OperatorHarness(operator) as harness:
        harness.push([1.0, 3.0], [2, 7])
        assert harness.push_watermark(100) == [1.0, 2.0, 3.0]


def test_accumulators_come_back() -> None:
    with OperatorHarness(means(Mean())) as harness:
        harness.push([1.0], [1])
        saved = harness.snapshot()
    with OperatorHarness(means(Mean()), restored=[saved]) as harness:
        harness.push([5.0], [2])
        assert harness.push_watermark(9) == [3.0]


def test_each_subtask_works_with_a_copy_of_the_aggregate() -> None:
    mean = Mean()
    AggregatedContents(mean).first(1.0)
    assert mean.made == []


async def later(self: Any, *_: Any) -> Any:
    return 1


def yielding(self: Any, *_: Any) -> Any:
    yield 1


@pytest.mark.parametrize("method", ["create_accumulator", "add", "get_result"])
@pytest.mark.parametrize(
    ("function", "message"),
    [(later, "later .* declared `async def`"), (yielding, "yielding .* which yields")],
)
def test_an_aggregate_whose_methods_return_no_values_is_refused_before_the_first_record(
    method: str, function: Any, message: str
) -> None:
    aggregate = type("Wrong", (Mean,), {method: function})()
    with pytest.raises(OperatorError, match=f"window calls {message}"):
        OperatorHarness(means(aggregate))


@pytest.mark.parametrize("method", ["create", "add"])
def test_an_aggregate_that_fails_on_a_record_is_named_with_it(method: str) -> None:
    with (
        OperatorHarness(means(Mean(method))) as harness,
        pytest.raises(OperatorError, match=rf"window function Mean\.add .*{method} as asked.*on record 1\.0"),
    ):
        harness.push([1.0], [1])


def test_an_aggregate_that_fails_in_its_result_is_named() -> None:
    with OperatorHarness(means(Mean("result"))) as harness:
        harness.push([1.0], [1])
        with pytest.raises(OperatorError, match=r"window function Mean\.get_result .*result as asked"):
            harness.push_watermark(9)
