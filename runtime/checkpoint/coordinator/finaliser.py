"""Writes the records of complete checkpoints, one after the other.

The record decides whether a checkpoint exists. While it is being written nobody knows, so a checkpoint that
is being written can neither be aborted nor overtaken, and a new attempt waits until the outcome is known.
Those that wait for their turn can still be withdrawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.runtime.ports import AsyncRunner

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    checkpoint_id: int
    begin: Callable[[], Callable[[], T]]
    on_result: Callable[[T], None]
    on_error: Callable[[BaseException], None]


class CheckpointFinaliser(Generic[T]):
    """A queue of background work of which one piece runs at a time.

    Args:
        runner: Runs it.
    """

    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner
        self._waiting: deque[_Job[T]] = deque()
        self._running: int | None = None
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written and nothing waits."""
        return self._running is None and not self._waiting

    def submit(
        self,
        checkpoint_id: int,
        begin: Callable[[], Callable[[], T]],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Write a checkpoint when its turn comes.

        Args:
            checkpoint_id: Which.
            begin: Called when its turn comes, in the caller's thread; gives the blocking work.
            on_result: Told the outcome.
            on_error: Told the error.
        """
        self._waiting.append(_Job(checkpoint_id, begin, on_result, on_error))
        self._next()

    def withdraw(self, checkpoint_id: int) -> None:
        """Forget a checkpoint that still waits; one that is being written goes on."""
        self._waiting = deque(job for job in self._waiting if job.checkpoint_id != checkpoint_id)
        self._tell_idle()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back as soon as nothing is being written: at once, or after the last outcome was told."""
        self._when_idle.append(callback)
        self._tell_idle()

    def _next(self) -> None:
        if self._running is not None or not self._waiting:
            return
        job = self._waiting.popleft()
        self._running = job.checkpoint_id

        def result(outcome: T) -> None:
            job.on_result(outcome)
            self._go_on()

        def error(cause: BaseException) -> None:
            job.on_error(cause)
            self._go_on()

        self._runner.run(job.begin(), result, error)

    def _go_on(self) -> None:
        self._running = None
        self._next()
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not self.is_idle:
            return
        callbacks, self._when_idle = self._when_idle, []
        for callback in callbacks:
            callback()
