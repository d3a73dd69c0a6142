"""Checkpoints that a job takes without waiting for the next period.

`FinalCheckpoint`: the last checkpoint of a bounded job. A subtask finishes only after a checkpoint that
covers the end of its data. So the checkpoint is triggered when every unfinished subtask has reported the end
of its data. A checkpoint in progress may cover these ends, so the job first waits for its outcome. A failed
last checkpoint is retried after a pause, and counts as a failed checkpoint. The periodic timer keeps running
for subtasks that need another checkpoint.

`SavepointFollowUp`: the checkpoint right after a savepoint. Users may move or delete a savepoint, but a
restart needs it until a newer checkpoint is complete. So the request for the savepoint is answered when the
follow-up is complete. A failed follow-up is retried a few times. It waits while the job restarts, stops or is
rescaled. If no checkpoint completes, the answer says that the job still needs the savepoint. A job that ends
no longer needs it; the request is then answered before the end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointSucceeded,
    OnAnswer,
)
from penstock.runtime.job.job_state import JobState
from penstock.runtime.ports import Cancellable, TimerService
from penstock.runtime.snapshot.ids import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
    from penstock.runtime.job.context import JobContext


#: Seconds between two checks of a pending checkpoint.
POLL: Final = 0.1

#: Seconds after which a failed checkpoint is tried again.
RETRY_AFTER: Final = 1.0


class FinalCheckpoint:
    def __init__(
        self, coordinator: CheckpointCoordinator, planner: CheckpointPlanner, timers: TimerService
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
        return frozenset(self._reported)

    def end_of_data(self, subtask: SubtaskId) -> None:
        self._reported.add(subtask)
        self.check()

    def check(self) -> None:
        """Trigger the checkpoint if all unfinished subtasks have reported and no checkpoint is pending."""
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


#: Maximum number of checkpoints that are triggered after a savepoint.
TRIES: Final = 4

#: Maximum number of checks, `RETRY_AFTER` apart, while the job does not run.
WAITS: Final = 30


class SavepointFollowUp:
    """Answers a request for a savepoint, and says whether the job still needs the savepoint."""

    def __init__(self, job: JobContext, coordinator: CheckpointCoordinator, on_answer: OnAnswer) -> None:
        self._job = job
        self._coordinator = coordinator
        self._on_answer = on_answer
        self._tries, self._waits = TRIES, WAITS
        self._is_answered = False

    def savepoint_ended(self, answer: CheckpointAnswer) -> None:
        if isinstance(answer, CheckpointFailed):
            self._on_answer(answer)
        else:
            self._job.before_end(self, lambda: self._answer(answer))
            self._try(answer)

    def _answer(self, savepoint: CheckpointSucceeded) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._job.forget_before_end(self)
            self._on_answer(savepoint)

    def _try(self, savepoint: CheckpointSucceeded) -> None:
        state = self._job.state.name
        if self._is_answered or self._is_free_of(savepoint):
            self._answer(savepoint)
        elif state is JobState.RUNNING:
            self._tries -= 1
            self._coordinator.trigger(urgent=True, on_answer=lambda answer: self._followed(savepoint, answer))
        else:
            self._waits -= 1
            self._try_again(savepoint, f"the job is {state.value}")

    def _followed(self, savepoint: CheckpointSucceeded, answer: CheckpointAnswer) -> None:
        if isinstance(answer, CheckpointSucceeded):
            self._answer(savepoint)
        else:
            self._try_again(savepoint, answer.why)

    def _try_again(self, savepoint: CheckpointSucceeded, why: str) -> None:
        if self._tries and self._waits and not self._job.is_fenced:
            self._job.timers.call_later(RETRY_AFTER, lambda: self._try(savepoint))
        elif self._is_free_of(savepoint):
            self._answer(savepoint)
        else:
            self._answer(replace(savepoint, still_needed=f"no checkpoint could be taken after it: {why}"))

    def _is_free_of(self, savepoint: CheckpointSucceeded) -> bool:
        newest = self._coordinator.latest_completed
        has_younger = newest is not None and newest.checkpoint_id > savepoint.checkpoint.checkpoint_id
        return has_younger or self._job.state.name.is_terminal
