"""Windows that overlap share their records: functions that change those in place are found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from window_setup import SLIDING, TEN, applied

from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.user_code.changes_in_place import WATCHED_CALLS
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import (
    AggregatedContents,
    AggregateFunction,
    ListedContents,
    ReducedContents,
)
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.time.windows import SlidingEventTimeWindows, TimeWindow, WindowAssigner

pytestmark = pytest.mark.usefixtures("either_backend")

Record = dict[str, Any]


def changes_the_second(a: Record, b: Record) -> Record:
    b["n"] += a["n"]
    return b


def changes_within_the_first(a: Record, b: Record) -> Record:
    a["items"].extend(b["items"])
    return a


def makes_another(a: Record, b: Record) -> Record:
    return {"n": a["n"] + b["n"], "items": [*a["items"], *b["items"]]}


def record() -> Record:
    return {"n": 1, "items": [1]}


def reduced(function: Callable[[Any, Any], Any]) -> WindowOperator:
    return WindowOperator(lambda row: 0, SLIDING, partial(ReducedContents, function))


@pytest.mark.parametrize(
    ("function", "which"), [(changes_the_second, "second"), (changes_within_the_first, "first")]
)
def test_a_reduce_function_that_changes_an_argument_is_found_out(
    function: Callable[[Any, Any], Any], which: str
) -> None:
    with (
        OperatorHarness(reduced(function)) as harness,
        pytest.raises(OperatorError, match=rf"{function.__name__} .*its {which} argument in place.*windows"),
    ):
        harness.push([record(), record(), record()], [6, 7, 8])


def test_a_reduce_function_that_makes_new_records_is_not_blamed() -> None:
    with OperatorHarness(reduced(makes_another)) as harness:
        harness.push([record(), record(), record()], [6, 7, 8])
        assert harness.push_watermark(100) == [{"n": 3, "items": [1, 1, 1]}] * 2


def test_no_more_calls_are_watched_than_said_also_within_one_batch() -> None:
    def changes_late(a: Record, b: Record) -> Record:
        changed = {**a, "n": a["n"] + 1}
        if changed["n"] > WATCHED_CALLS + 1:
            b["n"] = 77
        return changed

    operator = WindowOperator(lambda row: 0, TEN, partial(ReducedContents, changes_late))
    with OperatorHarness(operator) as harness:
        harness.push([record() for _ in range(2 * WATCHED_CALLS)], [7] * 2 * WATCHED_CALLS)
        assert harness.push_watermark(100)[0]["n"] == 2 * WATCHED_CALLS


def changes_records(key: int, window: TimeWindow, records: list[Record]) -> list[Record]:
    for each in records:
        each["n"] *= 10
    return records


def changes_while_read(key: int, window: TimeWindow, records: list[Record]) -> Iterator[int]:
    for each in records:
        yield each["n"]
        each["items"].append(each["n"])


def fired(function: Callable[..., Any], windows: WindowAssigner) -> list[Any]:
    operator = WindowOperator(lambda row: 0, windows, partial(ListedContents, function))
    with OperatorHarness(operator) as harness:
        harness.push([record(), record()], [6, 7])
        return harness.push_watermark(100)


@pytest.mark.parametrize("function", [changes_records, changes_while_read])
def test_an_apply_function_that_changes_its_records_is_found_out(function: Callable[..., Any]) -> None:
    with pytest.raises(OperatorError, match=rf"{function.__name__} .*changed a record in place.*windows"):
        fired(function, SLIDING)


def test_where_no_windows_overlap_an_apply_function_may_change_its_records() -> None:
    assert [each["n"] for each in fired(changes_records, TEN)] == [10, 10]


class EveryFive:
    """Sliding windows that don't say how often they begin."""

    size = 10

    def starts(self, timestamp: int) -> tuple[int, ...]:
        return SlidingEventTimeWindows(size=1e-5, slide=5e-6).starts(timestamp)


def test_windows_of_a_users_own_assigner_are_watched_once_they_overlap() -> None:
    with pytest.raises(OperatorError, match="changed a record in place"):
        fired(changes_records, EveryFive())


def test_an_apply_function_may_do_what_it_likes_with_the_list_and_return_nothing() -> None:
    def takes_all(key: int, window: TimeWindow, records: list[Record]) -> None:
        records.clear()

    assert fired(takes_all, SLIDING) == []


def test_an_apply_function_is_called_as_it_is_when_it_was_watched_enough() -> None:
    contents = ListedContents(lambda key, window, records: records)
    contents.overlap = True
    window, kept = TimeWindow(0, 10), [record()]
    for _ in range(WATCHED_CALLS):
        assert contents.results(0, window, kept) is not kept
        list(contents.results(0, window, kept) or ())
    assert contents.results(0, window, kept) is kept


@pytest.mark.parametrize("result", ["text", 5])
def test_a_result_that_is_none_is_not_passed_over_while_the_function_is_watched(result: Any) -> None:
    with OperatorHarness(applied(lambda *_: result, SLIDING)) as harness:
        harness.push([("a", 1)], [7])
        with pytest.raises(OperatorError, match=r"window function lambda .*it returned"):
            harness.push_watermark(100)


class Largest(AggregateFunction[Record, list[Record], Record]):
    """Changes its accumulator, and the records too if it is told to."""

    def __init__(self, *, in_place: bool) -> None:
        self.in_place = in_place

    def create_accumulator(self) -> list[Record]:
        return []

    def add(self, value: Record, accumulator: list[Record]) -> list[Record]:
        if self.in_place:
            value["rank"] = len(accumulator)
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Record]) -> Record:
        return max(accumulator, key=lambda each: each["n"])


def aggregated(function: Largest, windows: WindowAssigner) -> list[Any]:
    operator = WindowOperator(lambda row: 0, windows, partial(AggregatedContents, function))
    with OperatorHarness(operator) as harness:
        harness.push([record(), record()], [6, 7])
        return harness.push_watermark(100)


def test_an_aggregate_that_changes_a_record_is_found_out_and_names_it() -> None:
    with pytest.raises(OperatorError, match=r"Largest\.add .*a record in place.*on record \{.*'rank': 0"):
        aggregated(Largest(in_place=True), SLIDING)


def test_an_aggregate_may_change_its_accumulator_and_records_that_no_other_window_has() -> None:
    assert aggregated(Largest(in_place=False), SLIDING) == [record()] * 2
    assert aggregated(Largest(in_place=True), TEN) == [{**record(), "rank": 0}]


def test_an_aggregate_is_called_as_it_is_when_it_was_watched_enough() -> None:
    contents = AggregatedContents(Largest(in_place=False))
    contents.overlap = True
    watching, kept = contents.add, contents.first(record())
    for _ in range(WATCHED_CALLS):
        contents.add(kept, record())
    assert contents.add != watching
