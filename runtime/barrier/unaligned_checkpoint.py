"""`UnalignedCheckpoint`: where one checkpoint stands on each channel of an input that can be overtaken."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.record.elements import CheckpointBarrier


class UnalignedCheckpoint:
    """Facts about one checkpoint, by channel; what they lead to is decided in `unaligned_states`.

    Arrival and consumption are counted apart. A channel that has not consumed its barrier still has data of
    the checkpoint in front. A channel whose barrier has not arrived will get more of it.

    Args:
        barrier: The first sign of it.
        open_channels: Channels whose end was not consumed.
        arriving: Channels on which the barrier may still arrive.
        started_at: Monotonic time of the first sign.

    Attributes:
        barrier: As it was sent.
        started_at: Monotonic time of the first sign.
        unconsumed: Channels that have not consumed their barrier or end.
        unarrived: Channels whose barrier, or end, has not arrived.
        blocked: Channels that wait after their barrier for the trigger.

    Example:
        >>> checkpoint = UnalignedCheckpoint(CheckpointBarrier(7, 0.0), {0, 1}, {0, 1}, started_at=0.0)
        >>> checkpoint.id, sorted(checkpoint.unarrived)
        (7, [0, 1])
    """

    __slots__ = ("barrier", "blocked", "started_at", "unarrived", "unconsumed")

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

    @property
    def id(self) -> int:
        """The checkpoint's id."""
        return self.barrier.checkpoint_id
