"""`WindowSettings`: the windows that a user has described so far, and their operator.

Event-time windows of one size without further settings use `WindowOperator`. All others use
`TriggeredWindowOperator`. Both emit the same results, and keep the same window contents.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.streams.checked_call import need_tag, refusals, refuse
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.windows.trigger import Trigger
from penstock.runtime.operators.windows.triggered_window import TriggeredWindowOperator, WindowPlan
from penstock.runtime.operators.windows.triggers import (
    CountEvictor,
    CountTrigger,
    EventTimeTrigger,
    Evictor,
    ProcessingTimeTrigger,
    PurgingTrigger,
    part_of_other_time,
    positive,
)
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.operators.windows.window_contents import FoldedContents, WindowContents
from penstock.runtime.time.durations import Duration, micros_in
from penstock.runtime.time.windows import AlignedWindows, GlobalWindows, RecordWindowAssigner, WindowAssigner

AnyWindows: TypeAlias = WindowAssigner | RecordWindowAssigner[Any]
MakeContents: TypeAlias = Callable[[], WindowContents]


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Settings of windows; each `with_` method returns new ones, or raises `GraphError` with the user's line.

    Attributes:
        own_trigger: The user's trigger; `None` for the default of the assigner.
        lateness: Microseconds for which a window is kept after its end.
        last: Number of records in windows that slide by count.
    """

    assigner: AnyWindows
    own_trigger: Trigger[Any] | None = None
    own_evictor: Evictor[Any] | None = None
    lateness: int = 0
    late_tag: str = LATE_RECORDS
    last: int | None = None

    @classmethod
    def of(cls, call: str, assigner: object) -> WindowSettings:
        if inspect.isclass(assigner) or not isinstance(assigner, WindowAssigner | RecordWindowAssigner):
            refuse(f"{call} needs windows such as TumblingEventTimeWindows(60), not {assigner!r:.80}")
        return cls(assigner)

    @classmethod
    def of_counts(cls, call: str, size: int, slide: int | None) -> WindowSettings:
        try:
            positive(call, size)
            step = size if slide is None else positive(f"{call}: slide", slide)
        except ConfigurationError as error:
            refuse(str(error).partition(": ")[2])
        if step > size:
            refuse(
                f"{call}: with size {size} and slide {step}, windows leave gaps; make the slide at most "
                "the size"
            )
        if step == size:
            return cls(GlobalWindows(), PurgingTrigger(CountTrigger(size)))
        return cls(GlobalWindows(), CountTrigger(step), last=size)

    @property
    def records(self) -> RecordWindowAssigner[Any]:
        assigner = self.assigner
        return assigner if isinstance(assigner, RecordWindowAssigner) else AlignedWindows(assigner)

    @property
    def is_plain(self) -> bool:
        """Whether the windows emit once, at their end, and are then removed."""
        return self.own_trigger is None and self.own_evictor is None and not self.lateness

    def with_trigger(self, trigger: object) -> WindowSettings:
        if inspect.isclass(trigger) or not isinstance(trigger, Trigger):
            refuse(f"trigger needs a Trigger such as CountTrigger(100), not {trigger!r:.80}")
        if self.records.is_merging and not trigger.can_merge:
            refuse(
                f"trigger: windows of {self.assigner!r} merge, and {trigger!r} can't: "
                "write on_merge(window, ctx), which sets the timers of the merged window"
            )
        self._check_time_of(trigger)
        return replace(self, own_trigger=trigger)

    def with_evictor(self, evictor: object) -> WindowSettings:
        if inspect.isclass(evictor) or not isinstance(evictor, Evictor):
            refuse(f"evictor needs an Evictor such as CountEvictor(100), not {evictor!r:.80}")
        return replace(self, own_evictor=evictor, last=None)

    def with_lateness(self, lateness: Duration) -> WindowSettings:
        if not self.records.is_event_time:
            refuse(f"allowed_lateness: {self.assigner!r} are not event-time windows, so no record is late")
        with refusals("allowed_lateness"):
            return replace(self, lateness=micros_in("lateness", lateness, at_least=0))

    def with_late_tag(self, tag: object) -> WindowSettings:
        return replace(self, late_tag=need_tag("side_output_late_data", tag))

    def factory(self, call: str, key_selector: Callable[[Any], Any], make: MakeContents) -> OperatorFactory:
        trigger = self.own_trigger
        if self.own_evictor is not None and call != "apply":
            refuse(
                f"{call}: an evictor removes records from a window, but {call} does not keep records; "
                "use apply, which receives the remaining ones"
            )
        if trigger is None and self.records.is_endless:
            refuse(f"{call}: {self.assigner!r} never end; say when they emit: .trigger(CountTrigger(100))")
        if self.is_plain and not isinstance(self.assigner, RecordWindowAssigner):
            return partial(WindowOperator, key_selector, self.assigner, make, self.late_tag)
        evictor = self.own_evictor
        if self.last is not None:
            evictor = CountEvictor(self.last)
            if call != "apply":
                make = partial(FoldedContents, make)
        if trigger is None:
            trigger = EventTimeTrigger() if self.records.is_event_time else ProcessingTimeTrigger()
        plan = WindowPlan(self.records, trigger, evictor, self.lateness, self.late_tag)
        return partial(TriggeredWindowOperator, key_selector, plan, make)

    def _check_time_of(self, trigger: Trigger[Any]) -> None:
        """Refuse a trigger that waits for the end of windows in a time domain other than theirs."""
        windows = self.records
        if windows.is_endless:
            return  # only the end of the input ends these windows, and it fires triggers of both domains
        part = part_of_other_time(trigger, is_event_time=windows.is_event_time)
        if part is None:
            return
        if windows.is_event_time:
            ends, waits = "in event time", "in processing time"
            instead = "EventTimeTrigger(early=ContinuousProcessingTimeTrigger(5)), or processing-time windows"
        else:
            ends, waits = "in processing time", "in event time"
            instead = "ProcessingTimeTrigger(), or event-time windows"
        refuse(
            f"trigger: {self.assigner!r} end {ends}, and {part!r} waits for their end {waits}. Use {instead}"
        )

    def __str__(self) -> str:
        parts = [repr(self.assigner)]
        if self.own_trigger is not None:
            parts.append(repr(self.own_trigger))
        if self.own_evictor is not None:
            parts.append(repr(self.own_evictor))
        if self.last is not None:
            parts.append(f"the last {self.last}")
        if self.lateness:
            parts.append(f"{timedelta(microseconds=self.lateness)} late")
        return ", ".join(parts)
