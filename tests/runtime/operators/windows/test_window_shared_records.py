"""Windows that overlap have the same records: functions may change them, and each window has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from window_setup import SLIDING, TEN, applied

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.functions.keyed_folds import AggregatedContents, AggregateFunction
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import ListedContents, ReducedContents
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import SlidingEventTimeWindows, TimeWindow, WindowAssigner

pytestmark = pytest.mark.usefixtures("either_backend")

Record = dict[str, Any]


def changes_the_second(a: Record, b: Record) -> Record:
    b["n"] += a["n"]
    b["items"] += a["items"]
    return b


def changes_within_the_first(a: Record, b: Record) -> Record:
    a["n"] += b["n"]
    a["items"].extend(b["items"])
    return a


def makes_another(a: Record, b: Record) -> Record:
    return {"n": a["n"] + b["n"], "items": [*a["items"], *b["items"]]}


def record() -> Record:
    return {"n": 1, "items": [1]}


@pytest.mark.parametrize("function", [changes_the_second, changes_within_the_first, makes_another])
def test_a_reduce_function_may_change_its_arguments(function: Callable[[Any, Any], Any]) -> None:
    with OperatorHarness(
        WindowOperator(lambda row: 0, SLIDING, partial(ReducedContents, function))
    ) as harness:
        harness.push([record(), record(), record()], [6, 7, 8])
        assert harness.push_watermark(100) == [{"n": 3, "items": [1, 1, 1]}] * 2


def changes_records(key: int, window: TimeWindow, records: list[Record]) -> list[Record]:
    for each in records:
        each["n"] *= 10
    return records


def changes_while_read(key: int, window: TimeWindow, records: list[Record]) -> Iterator[Record]:
    for each in records:
        each["n"] *= 10
        yield each
        each["items"].append(each["n"])


class EveryFive:
    """Sliding windows that don't say how often they begin."""

    size = 10

    def starts(self, timestamp: int) -> tuple[int, ...]:
        return SlidingEventTimeWindows(size=1e-5, slide=5e-6).starts(timestamp)


def fired(function: Callable[..., Any], windows: Any) -> list[Any]:
    operator = WindowOperator(lambda row: 0, windows, partial(ListedContents, function))
    with OperatorHarness(operator) as harness:
        harness.push([record(), record()], [6, 7])
        return harness.push_watermark(100)


@pytest.mark.parametrize("function", [changes_records, changes_while_read])
@pytest.mark.parametrize("windows", [SLIDING, TEN, EveryFive()])
def test_an_apply_function_may_change_its_records(function: Callable[..., Any], windows: Any) -> None:
    emitted = fired(function, windows)
    assert emitted == [{"n": 10, "items": [1]}] * len(emitted)
    assert len(emitted) == (2 if windows is TEN else 4)


def test_an_apply_function_may_do_what_it_likes_with_the_list_and_return_nothing() -> None:
    def takes_all(key: int, window: TimeWindow, records: list[Record]) -> None:
        records.clear()

    assert fired(takes_all, SLIDING) == []


@pytest.mark.parametrize("result", ["text", 5])
def test_a_result_that_is_no_list_is_refused(result: Any) -> None:
    with OperatorHarness(applied(lambda *_: result, SLIDING)) as harness:
        harness.push([("a", 1)], [7])
        with pytest.raises(OperatorError, match=r"window function lambda .*it returned"):
            harness.push_watermark(100)


class Ranked(AggregateFunction[Record, list[Record], list[Record]]):
    """Changes its accumulator and the records, and gives the accumulator as its result."""

    def create_accumulator(self) -> list[Record]:
        return []

    def add(self, value: Record, accumulator: list[Record]) -> list[Record]:
        value["rank"] = len(accumulator)
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Record]) -> list[Record]:
        return accumulator


@pytest.mark.parametrize("windows", [SLIDING, TEN])
def test_an_aggregate_may_change_its_accumulator_and_its_records(windows: WindowAssigner) -> None:
    operator = WindowOperator(lambda row: 0, windows, partial(AggregatedContents, Ranked()))
    with OperatorHarness(operator) as harness:
        harness.push([record(), record()], [4, 7])
        late, early = {**record(), "rank": 0}, {**record(), "rank": 1}
        both = [{**record(), "rank": 0}, early]
        assert harness.push_watermark(100) == ([[late], both, [late]] if windows is SLIDING else [both])
