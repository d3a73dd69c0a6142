"""Windows that make no sense are refused while the graph is built, with the user's file and line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    AggregateFunction,
    DataStream,
    OperatorError,
    OutputTag,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.aggregates import Sum
from penstock.testing import OperatorHarness
from penstock.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

FILE = r"tests/runtime/graph/streams/test_window_refusals\.py"
HERE = rf"^{FILE}:\d+ in lambda: "

TEN = TumblingEventTimeWindows(10)
STRATEGY: WatermarkStrategy[int] = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(abs)


class Unmergeable(Trigger[int]):
    """Emits for each record, and says nothing of windows that merge."""

    def on_element(
        self, element: int, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE


class Total(AggregateFunction[int, int, int]):
    """A sum that does not know how to merge two."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


@pytest.fixture
def timed() -> DataStream[int]:
    env = StreamEnvironment("windows", parallelism=2)
    return env.from_collection("in", [1]).assign_timestamps_and_watermarks(STRATEGY)


MAKERS: dict[str, Callable[[Any], object]] = {
    "tumbling": lambda span: TumblingEventTimeWindows(span),
    "tumbling by the time of day": lambda span: TumblingProcessingTimeWindows(span),
    "sliding": lambda span: SlidingEventTimeWindows(span, 1),
    "slide": lambda span: SlidingEventTimeWindows(10, span),
    "sliding by the time of day": lambda span: SlidingProcessingTimeWindows(span, 1),
    "slide by the time of day": lambda span: SlidingProcessingTimeWindows(10, span),
    "cumulative": lambda span: CumulativeEventTimeWindows(span, 1),
    "step": lambda span: CumulativeEventTimeWindows(10, span),
    "step by the time of day": lambda span: CumulativeProcessingTimeWindows(10, span),
    "session": lambda span: EventTimeSessionWindows(span),
    "session by the time of day": lambda span: ProcessingTimeSessionWindows(span),
    "trigger": lambda span: ContinuousEventTimeTrigger(span),
    "trigger by the time of day": lambda span: ContinuousProcessingTimeTrigger(span),
    "evictor": lambda span: TimeEvictor(span),
}


@pytest.mark.parametrize("span", [0, -1, timedelta(0), timedelta(seconds=-5)], ids=str)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_span_of_zero_or_less_is_refused_where_it_is_written(kind: str, span: Any) -> None:
    with pytest.raises(PenstockError, match=rf"{HERE}\w+=.*: give a finite duration longer than 0 s"):
        MAKERS[kind](span)


@pytest.mark.parametrize("number", [0, -3, 2.5, True, "7"], ids=repr)
@pytest.mark.parametrize("make", [lambda n: CountTrigger(n), lambda n: CountEvictor(n)])
def test_a_number_of_records_that_is_none_is_refused_where_it_is_written(
    make: Callable[[Any], object], number: Any
) -> None:
    with pytest.raises(PenstockError, match=rf"{HERE}Count\w+ needs a positive whole number of records, not"):
        make(number)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlidingEventTimeWindows(5, 10), "leave gaps; make the slide at most the size"),
        (lambda: SlidingProcessingTimeWindows(5, 10), "leave gaps; make the slide at most the size"),
        (lambda: CumulativeEventTimeWindows(10, 3), "make the largest size a whole number of steps"),
        (lambda: CumulativeProcessingTimeWindows(10, 20), "make the largest size a whole number of steps"),
        (lambda: EventTimeTrigger(early=5), "early must be a trigger such as CountTrigger"),
        (lambda: EventTimeTrigger(late=CountTrigger), "late must be a trigger such as CountTrigger"),
        (lambda: PurgingTrigger(None), r"trigger must be a trigger such as CountTrigger\(100\), not None"),
    ],
)
def test_windows_and_triggers_that_do_not_fit_are_refused_where_they_are_written(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(PenstockError, match=f"{HERE}.*{message}"):
        make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s.key_by(abs).window(EventTimeSessionWindows(10)).trigger(Unmergeable()),
            r"windows of EventTimeSessionWindows\(0:00:10\) merge, and Unmergeable\(\) can't: write on_merge",
        ),
        (
            lambda s: s.window_all(ProcessingTimeSessionWindows(10)).trigger(
                EventTimeTrigger(early=Unmergeable())
            ),
            "merge, and EventTimeTrigger.* can't: write on_merge",
        ),
        (
            lambda s: (
                s.key_by(abs).window(EventTimeSessionWindows(10)).trigger(PurgingTrigger(Unmergeable()))
            ),
            "merge, and PurgingTrigger.* can't: write on_merge",
        ),
        (
            lambda s: s.key_by(abs).window(EventTimeSessionWindows(10)).aggregate("sum", Total()),
            r"merge, so Total needs a method merge\(first, second\)",
        ),
        (
            lambda s: s.key_by(abs).window(TEN).evictor(CountEvictor(3)).reduce("most", max),
            "reduce: an evictor removes records from a window, but reduce does not keep records; use apply",
        ),
        (
            lambda s: s.key_by(abs).window(TEN).evictor(CountEvictor(3)).aggregate("sum", Total()),
            "aggregate: an evictor removes records from a window, but aggregate does not .*; use apply",
        ),
        (
            lambda s: s.window_all(TEN).evictor(CountEvictor(3)).reduce("most", max),
            "reduce: an evictor removes records from a window",
        ),
        (
            lambda s: s.key_by(abs).window(GlobalWindows()).reduce("most", max),
            r"reduce: GlobalWindows\(\) never end; say when they emit: \.trigger\(CountTrigger\(100\)\)",
        ),
        (
            lambda s: s.window_all(GlobalWindows()).apply("all", lambda window, records: records),
            r"apply: GlobalWindows\(\) never end; say when they emit",
        ),
        (
            lambda s: s.key_by(abs).window(GlobalWindows()).allowed_lateness(5),
            "are not event-time windows, so no record is late",
        ),
        (
            lambda s: s.key_by(abs).window(TumblingProcessingTimeWindows(5)).allowed_lateness(5),
            "are not event-time windows, so no record is late",
        ),
        (
            lambda s: s.key_by(abs).window(TEN).allowed_lateness(-1),
            "allowed_lateness: lateness=.*: give a finite duration of at least 0 s",
        ),
        (lambda s: s.key_by(abs).window(TEN).trigger(CountTrigger), "trigger needs a Trigger such as"),
        (lambda s: s.key_by(abs).window(TEN).evictor(5), "evictor needs an Evictor such as .*, not 5"),
        (
            lambda s: s.key_by(abs).window(TEN).side_output_late_data("late"),
            r"side_output_late_data needs an OutputTag\(\"name\"\), not 'late'",
        ),
        (lambda s: s.key_by(abs).window(TEN).side_output_late_data(OutputTag()), "the tag has no name"),
        (lambda s: s.key_by(abs).count_window(0), "count_window needs a positive whole number of records"),
        (lambda s: s.key_by(abs).count_window(-2), "count_window needs a positive whole number of records"),
        (lambda s: s.key_by(abs).count_window(5, 0), "slide needs a positive whole number of records, not 0"),
        (lambda s: s.key_by(abs).count_window(5, 9), "leave gaps; make the slide at most the size"),
        (
            lambda s: s.window_all(TEN).reduce("most", max, parallelism=2),
            r"windows without keys run in one subtask, so parallelism 2 is not possible; use key_by",
        ),
        (
            lambda s: s.key_by("k").window(ProcessingTimeSessionWindows(5)).aggregate("sum", n=Sum("v")),
            "functions of columns need Tumbling.*Sliding.*Cumulative.*, not ProcessingTimeSessionWindows",
        ),
        (
            lambda s: s.key_by("k").window(EventTimeSessionWindows(len)).aggregate("sum", n=Sum("v")),
            "functions of columns need .*EventTimeSessionWindows with one gap, not EventTimeSession",
        ),
        (
            lambda s: s.key_by("k").window(TEN).trigger(CountTrigger(5)).aggregate("sum", n=Sum("v")),
            "functions of columns emit once, .* so they take no trigger, evictor or lateness",
        ),
    ],
)
def test_windows_that_can_not_be_are_refused_with_the_users_line(
    call: Callable[[Any], object], message: str, timed: DataStream[int]
) -> None:
    with pytest.raises(PenstockError, match=f"{HERE}.*{message}"):
        call(timed)


@pytest.mark.parametrize(
    "windows", [TEN, EventTimeSessionWindows(10), CumulativeEventTimeWindows(10, 5)], ids=repr
)
def test_windows_of_event_time_say_with_their_line_that_timestamps_are_missing(windows: Any) -> None:
    """A source may give timestamps with its records, so only the first record without one is refused."""

    def most(numbers: DataStream[int]) -> DataStream[int]:
        return numbers.key_by(abs).window(windows).reduce("most", lambda one, other: max(one, other))

    message = rf"'most' .*lambda \({FILE}:\d+\).*no timestamps.*call assign_timestamps_and_watermarks"
    with OperatorHarness.of(most) as harness, pytest.raises(OperatorError, match=f"(?s){message}"):
        harness.push([1])
