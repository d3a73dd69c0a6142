"""`Running`: every subtask runs.

Checkpoints are taken. A failure ends the attempt, or restarts its region. When every subtask of a bounded job
has processed the end of its input, a final checkpoint is taken. Then the subtasks finish by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.runtime.checkpoint.coordinator.requests import OnAnswer
from penstock.runtime.job.automatic_checkpoints import FinalCheckpoint
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.requests import RescaleRequest, StopRequest
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.ended import Finished
from penstock.runtime.job.states.failing import Cancelling, Failing
from penstock.runtime.job.states.rescaling import Rescaling
from penstock.runtime.job.states.restarting_region import StoppingRegion
from penstock.runtime.job.states.stopping import Stopping
from penstock.runtime.snapshot.ids import SubtaskId


class Running(State):
    """Takes checkpoints until everything has finished.

    Args:
        reported: Subtasks that reported the end of their data before all were running.
    """

    name = JobState.RUNNING

    def __init__(self, job: JobContext, reported: Iterable[SubtaskId] = ()) -> None:
        super().__init__(job)
        self._final: FinalCheckpoint | None = None
        self._ending = False
        self._early = tuple(reported)

    def enter(self) -> None:
        coordinator = self.job.coordinator
        if coordinator is None:
            self.job.planner.started()
        else:
            coordinator.started()
            coordinator.start_periodic()
            self._final = FinalCheckpoint(coordinator, self.job.planner, self.job.timers)
            for subtask in self._early:
                self.end_of_data(subtask)
        self._finish_if_all_have()

    def leave(self) -> None:
        if self._final is not None:
            self._final.stop()

    def cancel(self) -> bool:
        if self._ending:
            return False
        self.job.enter(Cancelling(self.job), "cancelled")
        return True

    def stop(self, request: StopRequest, on_answer: OnAnswer) -> bool:
        if self._ending or self.job.coordinator is None:
            return False
        self.job.enter(Stopping(self.job, request, on_answer, self._reported), "stop with a savepoint")
        return True

    def rescale(self, request: RescaleRequest) -> bool:
        if self._ending or self.job.coordinator is None:
            return False
        self.job.enter(Rescaling(self.job, request, self._reported), "rescale")
        return True

    def failed(self, cause: FailureCause) -> bool:
        if self._ending:
            return False
        job = self.job
        region = job.region_to_restart(cause)
        if region is None:
            job.enter(Failing(job, cause), str(cause))
        else:
            job.enter(StoppingRegion(job, cause, region, self._reported), f"the region of {cause}")
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        if self._final is not None and self.job.coordinator is not None:
            self.job.coordinator.data_ended(subtask)
            self._final.end_of_data(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        self.job.subtask_finished(subtask)
        if self._final is not None:
            self._final.check()
        self._finish_if_all_have()
        return True

    @property
    def _reported(self) -> Collection[SubtaskId]:
        return self._early if self._final is None else self._final.reported

    def _finish_if_all_have(self) -> None:
        if self._ending or self.job.planner.unfinished_count:
            return
        self._ending = True
        self.leave()
        job = self.job
        job.end_checkpoints("every subtask has finished", for_good=True)
        job.when_log_is_known(
            lambda: job.record_end(JobState.FINISHED, "", lambda note: job.enter(Finished(job, note), note))
        )
