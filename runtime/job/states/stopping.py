"""`Stopping`: the job is being stopped with a savepoint (Flink's `StopWithSavepoint`, FLIP-34).

The steps: no other checkpoint is taken any more. With `drain`, event time advances to its end first, so
timers and windows fire. The sources end their data and send the savepoint's barrier after it. The savepoint
completes with a record in the log. The sinks commit what it covers, the subtasks finish, and so does the job.

Nothing is lost or done twice. A source sends nothing after the barrier, so the savepoint holds everything
that the job has done. If the savepoint fails, its sources have ended too early, so the attempt fails and the
next one starts from the last checkpoint. Once the savepoint is complete, the job reads no more records. After
a late failure, an attempt that starts from the savepoint commits what it covers and ends (`Suspended`).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointSucceeded,
    OnAnswer,
)
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.requests import StopRequest
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.ended import Finished
from penstock.runtime.job.states.failing import Cancelling, Failing
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.ids import SubtaskId


class Stopping(State):
    """Takes the job's last savepoint and waits until every subtask has left.

    Args:
        request: What the user wants.
        on_answer: Called once with the outcome of the savepoint.
        reported: Subtasks that had reported the end of their data.
    """

    name = JobState.STOPPING

    def __init__(
        self, job: JobContext, request: StopRequest, on_answer: OnAnswer, reported: Iterable[SubtaskId] = ()
    ) -> None:
        super().__init__(job)
        self._request = request
        self._on_answer = on_answer
        self._reported = list(reported)
        self._ending = False

    def enter(self) -> None:
        coordinator = self.job.coordinator
        assert coordinator is not None, "a job without checkpoints can't be stopped with a savepoint"
        coordinator.stop_periodic()
        coordinator.trigger(
            SnapshotKind.SYNC_SAVEPOINT,
            drain=self._request.drain,
            target=self._request.target,
            on_answer=self._answered,
        )

    def cancel(self) -> bool:
        if self._ending:
            return False
        self.job.enter(Cancelling(self.job), "cancelled")
        return True

    def failed(self, cause: FailureCause) -> bool:
        """End the attempt; the next one begins from the newest record in the log."""
        if self._ending:
            return False
        self.job.enter(Failing(self.job, cause), str(cause))
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        self._reported.append(subtask)
        if self.job.coordinator is not None:
            self.job.coordinator.data_ended(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        self.job.subtask_finished(subtask)
        self._finish_if_all_have()
        return True

    def _answered(self, answer: CheckpointAnswer) -> None:
        self._on_answer(answer)
        job = self.job
        if job.state is not self:
            return
        if isinstance(answer, CheckpointSucceeded):
            job.stopped_with = answer.checkpoint
            self._finish_if_all_have()
        elif answer.checkpoint_id is None:
            # No subtask was told of it. Otherwise the coordinator fails the attempt after this call.
            job.enter(job.running(self._reported), f"it was not stopped: {_why(answer)}")

    def _finish_if_all_have(self) -> None:
        if self._ending or self.job.stopped_with is None or self.job.planner.unfinished:
            return
        self._ending = True
        job = self.job
        job.end_checkpoints("the job was stopped with a savepoint", for_good=True)
        job.when_log_is_known(
            lambda: job.record_end(JobState.FINISHED, "", lambda note: job.enter(Finished(job, note), note))
        )


def _why(answer: CheckpointFailed) -> str:
    return f"{answer.reason.value}: {answer.detail}" if answer.detail else answer.reason.value
