"""Window assigners, triggers and evictors of `stream.window(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.operators.windows.trigger import Trigger as Trigger
    from penstock.runtime.operators.windows.trigger import TriggerContext as TriggerContext
    from penstock.runtime.operators.windows.trigger import TriggerResult as TriggerResult
    from penstock.runtime.operators.windows.trigger import TriggerState as TriggerState
    from penstock.runtime.operators.windows.triggers import (
        ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    )
    from penstock.runtime.operators.windows.triggers import (
        ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    )
    from penstock.runtime.operators.windows.triggers import CountEvictor as CountEvictor
    from penstock.runtime.operators.windows.triggers import CountTrigger as CountTrigger
    from penstock.runtime.operators.windows.triggers import EventTimeTrigger as EventTimeTrigger
    from penstock.runtime.operators.windows.triggers import Evictor as Evictor
    from penstock.runtime.operators.windows.triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
    from penstock.runtime.operators.windows.triggers import PurgingTrigger as PurgingTrigger
    from penstock.runtime.operators.windows.triggers import TimeEvictor as TimeEvictor
    from penstock.runtime.operators.windows.triggers import TimestampedValue as TimestampedValue
    from penstock.runtime.time.windows import CumulativeEventTimeWindows as CumulativeEventTimeWindows
    from penstock.runtime.time.windows import (
        CumulativeProcessingTimeWindows as CumulativeProcessingTimeWindows,
    )
    from penstock.runtime.time.windows import EventTimeSessionWindows as EventTimeSessionWindows
    from penstock.runtime.time.windows import GlobalWindows as GlobalWindows
    from penstock.runtime.time.windows import (
        ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
    )
    from penstock.runtime.time.windows import RecordWindowAssigner as RecordWindowAssigner
    from penstock.runtime.time.windows import SlidingEventTimeWindows as SlidingEventTimeWindows
    from penstock.runtime.time.windows import (
        SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
    )
    from penstock.runtime.time.windows import TimeWindow as TimeWindow
    from penstock.runtime.time.windows import TumblingEventTimeWindows as TumblingEventTimeWindows
    from penstock.runtime.time.windows import (
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
    )
    from penstock.runtime.time.windows import WindowAssigner as WindowAssigner
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
