"""`UnalignedCheckpoint`: where one checkpoint stands on each channel of an input that can be overtaken."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import CheckpointBarrier


class UnalignedCheckpoint:
    """One checkpoint from the first sign of it until its input part is complete.

    Arrival and consumption are counted apart: a channel that has not consumed its barrier still has data of
    the checkpoint in front, one whose barrier has not arrived will get more of it.

    Args:
        barrier: The first sign of it.
        open_channels: Channels of which the end was not consumed.
        arriving: Channels on which the barrier may still arrive.
        started_at: Monotonic time of the first sign.

    Attributes:
        barrier: As it was sent.
        started_at: Monotonic time of the first sign.
        unconsumed: Channels that have not consumed their barrier or end.
        unarrived: Channels whose barrier, or end, has not arrived.
        blocked: Channels that wait behind their barrier for the trigger.
        is_unaligned: It does not wait for all barriers.
        is_triggered: The task has taken it.
        timer: Turns it unaligned later.

    Example:
        >>> checkpoint = UnalignedCheckpoint(CheckpointBarrier(7, 0.0), {0, 1}, {0, 1}, started_at=0.0)
        >>> checkpoint.id, checkpoint.is_complete
        (7, False)
    """

    __slots__ = (
        "barrier",
        "blocked",
        "is_triggered",
        "is_unaligned",
        "started_at",
        "timer",
        "unarrived",
        "unconsumed",
    )

    def __init__(
        self,
        barrier: CheckpointBarrier,
        open_channels: Iterable[int],
        arriving: Iterable[int],
        started_at: float,
    ) -> None:
        self.barrier = barrier
        self.started_at = started_at
        self.unconsumed = set(open_channels)
        self.unarrived = set(arriving)
        self.blocked: list[int] = []
        self.is_unaligned = False
        self.is_triggered = False
        self.timer: Cancellable | None = None

    @property
    def id(self) -> int:
        """The checkpoint's id."""
        return self.barrier.checkpoint_id

    @property
    def is_complete(self) -> bool:
        """Whether it was taken and nothing of it can arrive any more."""
        return self.is_triggered and not self.unarrived
