"""`FinalCheckpoint`: triggers the last checkpoint of a bounded job at once.

A subtask finishes only after a checkpoint that covers the end of its data. A finished job should not wait for
the periodic checkpoint. So one is triggered when every unfinished subtask has reported the end of its data. A
checkpoint in progress may suffice, so its end is awaited first. If the last checkpoint fails, it is tried
again after a pause; its failures count like all others. After it is complete, subtasks finish by themselves.
The periodic timer keeps running in case one of them needs another checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointSucceeded, OnAnswer
from penstock.runtime.ports import Cancellable, TimerService
from penstock.runtime.snapshot.subtask_id import SubtaskId

#: Seconds between two checks of a pending checkpoint.
POLL: Final = 0.1

#: Seconds after which a failed last checkpoint is tried again.
RETRY_AFTER: Final = 1.0


class CheckpointTrigger(Protocol):
    """The part of the checkpoint coordinator that is needed here."""

    @property
    def pending_ids(self) -> Sequence[int]:
        """Ids of the checkpoints in progress."""
        ...

    def trigger(self, *, urgent: bool = False, on_answer: OnAnswer | None = None) -> None:
        """Trigger a checkpoint."""
        ...


class FinalCheckpoint:
    """Triggers the last checkpoint; see the module's text."""

    def __init__(
        self, coordinator: CheckpointTrigger, planner: CheckpointPlanner, timers: TimerService
    ) -> None:
        self._coordinator = coordinator
        self._planner = planner
        self._timers = timers
        self._reported: set[SubtaskId] = set()
        self._timer: Cancellable | None = None
        self._asked = False
        self._done = False

    @property
    def reported(self) -> frozenset[SubtaskId]:
        """Subtasks that have reported the end of their data."""
        return frozenset(self._reported)

    def end_of_data(self, subtask: SubtaskId) -> None:
        """A subtask has processed the end of all its inputs."""
        self._reported.add(subtask)
        self.check()

    def check(self) -> None:
        """Trigger the checkpoint if every unfinished subtask has reported and none is in progress."""
        count = self._planner.unfinished_count
        if self._asked or self._done or self._timer is not None or not count:
            return
        if len(self._reported) < count or not self._reported.issuperset(self._planner.unfinished):
            return
        if self._coordinator.pending_ids:
            self._check_after(POLL)
            return
        self._asked = True
        self._coordinator.trigger(urgent=True, on_answer=self._on_answer)

    def stop(self) -> None:
        """Trigger no checkpoint any more."""
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_answer(self, answer: CheckpointAnswer) -> None:
        self._asked = False
        if isinstance(answer, CheckpointSucceeded):
            self._done = True
        elif not self._done:
            self._check_after(RETRY_AFTER)

    def _check_after(self, delay: float) -> None:
        def again() -> None:
            self._timer = None
            self.check()

        self._timer = self._timers.call_later(delay, again)
