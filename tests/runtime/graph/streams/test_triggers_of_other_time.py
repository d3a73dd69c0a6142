"""A trigger waits for the end of a window by the kind of time at which the window ends, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import PenstockError, StreamEnvironment
from penstock.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

HERE = r"^tests/runtime/graph/streams/test_triggers_of_other_time\.py:\d+ in lambda: trigger: "
BY_EVENT_TIME = TumblingEventTimeWindows(10)
BY_THE_TIME_OF_DAY = TumblingProcessingTimeWindows(10)


def numbers() -> Any:
    return StreamEnvironment("windows").from_collection("in", [1])


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.key_by(abs).window(BY_EVENT_TIME).trigger(ProcessingTimeTrigger()),
        lambda s: s.window_all(EventTimeSessionWindows(10)).trigger(ProcessingTimeTrigger()),
        lambda s: s.key_by(abs).window(BY_EVENT_TIME).trigger(PurgingTrigger(ProcessingTimeTrigger())),
        lambda s: s.window_all(BY_EVENT_TIME).trigger(EventTimeTrigger(early=ProcessingTimeTrigger())),
        lambda s: s.window_all(BY_EVENT_TIME).trigger(
            EventTimeTrigger(early=CountTrigger(2), late=PurgingTrigger(ProcessingTimeTrigger()))
        ),
    ],
)
def test_windows_of_event_time_take_no_trigger_that_waits_by_the_time_of_day(
    call: Callable[[Any], object],
) -> None:
    message = r".* end in event time, and ProcessingTimeTrigger\(\) waits .* Use EventTimeTrigger\("
    with pytest.raises(PenstockError, match=HERE + message):
        call(numbers())


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.key_by(abs).window(BY_THE_TIME_OF_DAY).trigger(EventTimeTrigger()),
        lambda s: s.window_all(ProcessingTimeSessionWindows(10)).trigger(EventTimeTrigger()),
        lambda s: s.window_all(BY_THE_TIME_OF_DAY).trigger(EventTimeTrigger(early=CountTrigger(5))),
        lambda s: s.window_all(BY_THE_TIME_OF_DAY).trigger(PurgingTrigger(ContinuousEventTimeTrigger(5))),
    ],
)
def test_windows_of_processing_time_take_no_trigger_that_waits_in_event_time(
    call: Callable[[Any], object],
) -> None:
    message = r".* end in processing time, and .*EventTimeTrigger\(.* Use ProcessingTimeTrigger\(\)"
    with pytest.raises(PenstockError, match=HERE + message):
        call(numbers())


@pytest.mark.parametrize(
    ("windows", "trigger"),
    [
        (BY_EVENT_TIME, EventTimeTrigger(early=ContinuousProcessingTimeTrigger(1), late=CountTrigger(2))),
        (BY_EVENT_TIME, ContinuousEventTimeTrigger(1)),
        (BY_EVENT_TIME, PurgingTrigger(ContinuousProcessingTimeTrigger(1))),
        (BY_THE_TIME_OF_DAY, ProcessingTimeTrigger()),
        (BY_THE_TIME_OF_DAY, PurgingTrigger(CountTrigger(2))),
        (GlobalWindows(), EventTimeTrigger()),
        (GlobalWindows(), ProcessingTimeTrigger()),
    ],
    ids=str,
)
def test_triggers_that_fit_are_taken(windows: Any, trigger: Any) -> None:
    numbers().key_by(abs).window(windows).trigger(trigger)
