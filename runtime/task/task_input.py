"""What a subtask takes its work from: a source, or its input channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.runtime.record.elements import Batch, StreamStatus, Watermark


@dataclass(frozen=True, slots=True)
class SideBatch:
    """Records that a source puts on a side output."""

    tag: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class BatchArrived:
    """Records to process, and what goes to a side output beside them.

    Attributes:
        batch: Records for the operators; `None` if all went to the side output.
        side: Records for a side output.
        is_active_again: Whether the input was idle before these records.
        then: Event time behind these records.
    """

    batch: Batch | None
    side: SideBatch | None = None
    is_active_again: bool = False
    then: EventTimeAdvanced | None = None


@dataclass(frozen=True, slots=True)
class EventTimeAdvanced:
    """The watermark of the whole input has advanced, or the input became idle or active.

    Attributes:
        watermark: The new watermark; `None` if only the status has changed.
        status: Idle or active; `None` if only the watermark has changed.
    """

    watermark: Watermark | None
    status: StreamStatus | None = None


@dataclass(frozen=True, slots=True)
class DataEnded:
    """The last records of the whole input; no more will come.

    Attributes:
        drain: Whether event time goes to its end.
        batch: The last records.
        side: The last records for a side output.
        is_active_again: Whether the input was idle before these records.
    """

    drain: bool
    batch: Batch | None = None
    side: SideBatch | None = None
    is_active_again: bool = False


@dataclass(frozen=True, slots=True)
class Consumed:
    """Something was consumed that is no work for the operators; there may be more."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is nothing now.

    Attributes:
        ready_at: Monotonic time at which to ask again; `None`: when something arrives.
    """

    ready_at: float | None = None


InputProgress: TypeAlias = BatchArrived | EventTimeAdvanced | DataEnded | Consumed | Nothing

NOTHING: Final = Nothing()
CONSUMED: Final = Consumed()


class TaskInput(Protocol):
    """Where a subtask's work comes from."""

    def poll(self, max_rows: int) -> InputProgress:
        """The next piece of work."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Whether every channel has ended."""
        ...
