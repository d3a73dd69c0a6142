"""`BackgroundHook`: a master hook of calls that block.

What a user writes talks to a system outside and waits for it. Its part of a checkpoint runs in the
background, and its answer comes back to the coordinator's thread; `restore`, `reset` and `close` are called
in that thread and may take a moment.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.runtime.checkpoint.master_hooks import HookAnswer
from penstock.runtime.ports import AsyncRunner


class BlockingHook(Protocol):
    """A hook as a user writes it; its calls may come from different threads, never two at a time."""

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


class BackgroundHook:
    """Runs a blocking hook beside the coordinator.

    Args:
        hook: The user's.
        runner: Runs its part of a checkpoint.
    """

    def __init__(self, hook: BlockingHook, runner: AsyncRunner) -> None:
        self._hook = hook
        self._runner = runner

    @property
    def identifier(self) -> str:
        """The hook's."""
        return self._hook.identifier

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float, answer: HookAnswer) -> None:
        """Let the hook do its part; `answer` is given in the coordinator's thread."""
        self._runner.run(
            lambda: self._hook.trigger_checkpoint(checkpoint_id, timestamp), answer.complete, answer.fail
        )

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """Hand the state on."""
        self._hook.restore_checkpoint(checkpoint_id, state)

    def reset(self) -> None:
        """Hand it on."""
        self._hook.reset()

    def close(self) -> None:
        """Hand it on."""
        self._hook.close()
