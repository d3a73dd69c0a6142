"""`MasterHook`: the part of a source that runs in the JobMaster at every checkpoint."""

from __future__ import annotations

from typing import Any, Protocol


class MasterHook(Protocol):
    """A hook as a user writes it; its calls may come from different threads, never two at a time.

    All of them may block. A call that does not come back in time fails its checkpoint, or the start of the
    attempt. No further call is made before it has come back.

    Example:
        >>> class Sequence:  # numbers the checkpoints that the job builds on
        ...     identifier = "sequence"
        ...
        ...     def __init__(self):
        ...         self.newest = 0
        ...
        ...     def trigger_checkpoint(self, checkpoint_id, timestamp):
        ...         self.newest += 1
        ...         return self.newest
        ...
        ...     def restore_checkpoint(self, checkpoint_id, state):
        ...         self.newest = state
        ...
        ...     def reset(self):
        ...         self.newest = 0
        ...
        ...     def close(self):
        ...         pass
        >>> hook: MasterHook = Sequence()
        >>> hook.trigger_checkpoint(1, 0.0), hook.trigger_checkpoint(2, 0.0)
        (1, 2)
    """

    @property
    def identifier(self) -> str:
        """Names the hook's state for as long as the job lives."""
        ...

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> Any | None:
        """Do the hook's part of a checkpoint and return its state, any value that the codec carries.

        Raises:
            Exception: Whatever it raises gives the checkpoint up.
        """
        ...

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """The job starts from this checkpoint."""
        ...

    def reset(self) -> None:
        """The job starts from nothing."""
        ...

    def close(self) -> None:
        """The job has ended."""
        ...
