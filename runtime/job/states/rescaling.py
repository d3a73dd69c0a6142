"""`Rescaling`: the job gets another parallelism.

A checkpoint is taken while the job goes on. When it is complete, the subtasks are stopped, and the next
attempt begins from it with the new graph. The record of that attempt in the decision log holds the
parallelism, so a JobMaster that comes back later deploys the same. Records that were read since the
checkpoint are read again, as after a failure. But nothing has failed, so the restart strategy is not told.

The checkpoint is taken as the job's setting is, so that back pressure does not hold up the rescale of an
unaligned job. The one exception is a rebalance that becomes forward again: in-flight data has no place there,
so the checkpoint is aligned.

If the checkpoint fails, the job stays as it was. If a subtask fails meanwhile, the job restarts at the old
parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointSucceeded
from penstock.runtime.graph.job_graph import has_room_for_in_flight_data
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.requests import (
    RescaleAnswer,
    RescaleRecord,
    RescaleRefused,
    RescaleRequest,
    RescaleStarted,
)
from penstock.runtime.job.states.base import AttemptStop, State
from penstock.runtime.job.states.failing import Cancelling, Failing
from penstock.runtime.snapshot.ids import SubtaskId


class Rescaling(State):
    """Takes a checkpoint, stops the subtasks and lets the next attempt begin.

    Args:
        request: The new parallelism.
        reported: Subtasks that had reported the end of their data.
    """

    name = JobState.RESCALING

    def __init__(self, job: JobContext, request: RescaleRequest, reported: Iterable[SubtaskId] = ()) -> None:
        super().__init__(job)
        self._request = request
        self._reported = list(reported)
        self._stop = AttemptStop(job)
        self._answered = False

    def enter(self) -> None:
        coordinator = self.job.coordinator
        assert coordinator is not None, "a job without checkpoints can't be rescaled"
        new_parallelism, job = self._request.parallelism, self.job
        before = {vertex: job.graph.job.vertex(vertex).parallelism for vertex in new_parallelism}
        job.rescales.begin(RescaleRecord(job.clock.now(), job.attempt, before, dict(new_parallelism)))
        # Only this checkpoint counts from here on; it is aligned if in-flight data would not fit.
        coordinator.stop_periodic()
        aligned = not has_room_for_in_flight_data(job.graph.job, job.graph.job_at(new_parallelism))
        coordinator.trigger(urgent=True, aligned=aligned, on_answer=self._on_checkpoint)

    def leave(self) -> None:
        self._answer(RescaleRefused("the job was cancelled, or failed and restarts as it was"))

    def cancel(self) -> bool:
        self.job.enter(Cancelling(self.job, self._stop), "cancelled")
        return True

    def failed(self, cause: FailureCause) -> bool:
        if not self._stop.has_begun:
            self.job.enter(Failing(self.job, cause), str(cause))
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        self._reported.append(subtask)
        if self.job.coordinator is not None:
            self.job.coordinator.data_ended(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        self.job.subtask_finished(subtask)
        return True

    def all_stopped(self) -> bool:
        return self._stop.subtasks_stopped()

    def _on_checkpoint(self, answer: CheckpointAnswer) -> None:
        job = self.job
        if job.state is not self:
            return
        if not isinstance(answer, CheckpointSucceeded):
            why = f"its checkpoint failed: {answer.detail or answer.reason.value}"
            self._answer(RescaleRefused(why))
            job.enter(job.running(self._reported), f"it was not rescaled: {why}")
            return
        job.rescales.saved(answer.checkpoint.checkpoint_id)
        job.end_checkpoints("the job is rescaled")
        self._stop.begin(self._deploy)

    def _deploy(self) -> None:
        job = self.job
        self._answer(RescaleStarted(job.attempt))
        job.new_parallelism = {**job.graph.parallelism, **self._request.parallelism}
        job.deploy_again()

    def _answer(self, answer: RescaleAnswer) -> None:
        if not self._answered:
            self._answered = True
            failure = answer.why if isinstance(answer, RescaleRefused) else ""
            self.job.rescales.end(self.job.clock.now(), failure)
            self._request.on_answer(answer)
