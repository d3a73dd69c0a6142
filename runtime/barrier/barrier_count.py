"""`BarrierCount`: which channels still owe their barrier of one checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.record.elements import CheckpointBarrier


class BarrierCount:
    """Counts the barriers of one checkpoint, channel by channel.

    Args:
        channels: Channels that owe a barrier.
        started_at: Monotonic time of the first sign of the checkpoint.
        barrier: The first barrier that came; `None` when the first sign was a cancellation.

    Attributes:
        started_at: Monotonic time of the first sign of it.
        barrier: What a complete count triggers; `None` when the checkpoint was aborted, and what still comes
            for it is only counted.

    Example:
        >>> count = BarrierCount(7, {0, 1}, 0.0, CheckpointBarrier(7, 0.0))
        >>> count.settle(0), count.is_complete
        (True, False)
        >>> count.settle(0)
        False
        >>> count.settle(1), count.is_complete
        (True, True)
    """

    def __init__(
        self,
        checkpoint_id: int,
        channels: Iterable[int],
        started_at: float,
        barrier: CheckpointBarrier | None = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.started_at = started_at
        self.barrier = barrier
        self._owing = set(channels)

    @property
    def is_complete(self) -> bool:
        """Whether no channel owes a barrier any more."""
        return not self._owing

    def settle(self, channel: int) -> bool:
        """A channel owes nothing any more; whether it did until now."""
        if channel not in self._owing:
            return False
        self._owing.discard(channel)
        return True
