"""Arguments that windows with triggers refuse: the error names the function, or what to change."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AggregateFunction, OperatorError
from penstock.runtime.errors import StateMismatchError
from penstock.runtime.testing.harness import OperatorHarness
from penstock.windows import (
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
)

pytestmark = pytest.mark.usefixtures("either_backend")

TEN = TumblingEventTimeWindows(1e-5)
HERE = r"test_refusals.py:\d+"


def first(pair: Any) -> Any:
    return pair[0]


def listed(key: str, window: TimeWindow, records: list[Any]) -> list[Any]:
    return list(records)


def built(assigner: Any, trigger: Trigger[Any] | None = None, key: Any = first) -> Any:
    def build(rows: Any) -> Any:
        windows = rows.key_by(key).window(assigner)
        return (windows if trigger is None else windows.trigger(trigger)).apply("w", listed)

    return build


class Careless(Trigger[Any]):
    """Does what it is made with."""

    def __init__(self, does: Any) -> None:
        self.does = does

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        result: TriggerResult = self.does(ctx)
        return result


def fails(_: Any) -> Any:
    msg = "as asked"
    raise ValueError(msg)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (built(EventTimeSessionWindows(1), key=list), r"key_by function list"),
        (
            built(TEN, Careless(fails)),
            rf"window function Careless.on_element \(.*{HERE}\) failed: ValueError: as asked, at .*{HERE}",
        ),
        (built(TEN, Careless(lambda ctx: None)), "trigger Careless returned None: return a TriggerResult"),
        (
            built(TEN, Careless(lambda ctx: ctx.register_event_time_timer(3))),
            rf"{HERE}\).*a timer of event time at 3 for key 'a'.*in the past: it must be later than 4 ",
        ),
        (
            built(TEN, Careless(lambda ctx: ctx.register_processing_time_timer(3))),
            "a timer of processing time at 3 for key 'a'. This time is in the past",
        ),
        (
            built(EventTimeSessionWindows(fails)),
            rf"window function fails \(.*{HERE}\) failed: ValueError: as asked.*on record \('a', 1\)",
        ),
        (
            built(EventTimeSessionWindows(lambda row: 0)),
            rf"window function lambda \(.*{HERE}\) failed.*gap=0: give a finite duration longer than 0 s",
        ),
        (
            built(EventTimeSessionWindows(lambda row: "long")),
            "gap=.*: give a timedelta, or seconds",
        ),
    ],
)
def test_what_fails_is_named_with_its_line(build: Any, message: str) -> None:
    with OperatorHarness.of(build) as harness:
        harness.push_watermark(4)
        with pytest.raises(OperatorError, match=f"(?s){message}"):
            harness.push([("a", 1)], [9])


class FailsToMerge(AggregateFunction[Any, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, first: int, second: int) -> int:
        return int(fails(first))


def test_a_merge_that_fails_is_named_with_its_line() -> None:
    def build(rows: Any) -> Any:
        return rows.key_by(first).window(EventTimeSessionWindows(1)).aggregate("w", FailsToMerge())

    with OperatorHarness.of(build) as harness:
        harness.push([("a", 1), ("a", 1)], [0, 1_500_000])
        message = (
            rf"window function FailsToMerge.merge \(.*{HERE}\) failed: ValueError: as asked, at .*{HERE}"
        )
        with pytest.raises(OperatorError, match=message):
            harness.push([("a", 1)], [800_000])


def test_records_without_timestamps_are_told_what_is_missing() -> None:
    message = r"no timestamps.*call assign_timestamps_and_watermarks\(...\) before key_by"
    with (
        OperatorHarness.of(built(EventTimeSessionWindows(1))) as harness,
        pytest.raises(OperatorError, match=message),
    ):
        harness.push([("a", 1)])


def test_global_windows_need_no_timestamps() -> None:
    with OperatorHarness.of(built(GlobalWindows(), PurgingTrigger(CountTrigger(1)))) as harness:
        assert harness.push([("a", 1)]) == [("a", 1)]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            built(TEN),
            built(TEN, EventTimeTrigger()),
            "holds 'windows': it belonged to another kind of operator",
        ),
        (built(TEN, EventTimeTrigger()), built(TEN), "holds 'triggered_windows'"),
        (
            built(TEN, EventTimeTrigger()),
            built(TumblingEventTimeWindows(2e-5), EventTimeTrigger()),
            "the restored windows .TumblingEventTimeWindows, 10, .* differ from this program",
        ),
        (built(TEN, EventTimeTrigger()), built(TEN, CountTrigger(3)), "kind of trigger must be the same"),
    ],
)
def test_open_windows_are_not_taken_for_others(before: Any, after: Any, message: str) -> None:
    with OperatorHarness.of(before) as harness:
        harness.push([("a", 1)], [5])
        saved = harness.snapshot()
    with pytest.raises((OperatorError, StateMismatchError), match=message):
        OperatorHarness.of(after, restored=[saved])


def test_another_gap_or_number_is_no_other_kind_of_windows() -> None:
    with OperatorHarness.of(
        built(EventTimeSessionWindows(1e-5), EventTimeTrigger(CountTrigger(5)))
    ) as harness:
        harness.push([("a", 1)], [5])
        saved = harness.snapshot()
    after = built(EventTimeSessionWindows(2e-5), EventTimeTrigger(CountTrigger(2)))
    with OperatorHarness.of(after, restored=[saved]) as harness:
        assert harness.push([("a", 2)], [12]) == [("a", 1), ("a", 2)]
