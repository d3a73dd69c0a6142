"""The states of a job whose subtasks run: `Running`, `Stopping` and `Rescaling`.

`Running`: checkpoints are taken. A failure ends the attempt, or restarts its region. When every subtask of a
bounded job has processed the end of its input, a final checkpoint is taken. Then the subtasks finish.

`Stopping`: the job is being stopped with a savepoint (Flink's `StopWithSavepoint`, FLIP-34). No other
checkpoint is taken. With `drain`, event time advances to its end first, so timers and windows fire. The
sources send the end of data and then the savepoint's barrier. The savepoint completes with a record in the
log. The sinks commit the output up to the savepoint, the subtasks finish, and so does the job.

No output is lost or repeated. A source sends nothing after the barrier, so the savepoint covers everything
that the job has done. If the savepoint fails after its trigger, the sources may have stopped already. So the
attempt fails, and the next one starts from the last checkpoint. After a later failure, an attempt that starts
from the savepoint commits the output before it and ends (`Suspended`).

`Rescaling`: the job gets another parallelism. A checkpoint is taken while the job runs. When it is complete,
the subtasks are stopped, and the next attempt begins from it with the new graph. The record of that attempt
holds the parallelism, so a later JobMaster deploys it again. Records that were read since the checkpoint are
read again. Nothing has failed, so the restart strategy does not count the rescale.

The checkpoint follows the job's settings, so back pressure does not hold up the rescale of an unaligned job.
Such a job takes an aligned checkpoint only if an exchange that rebalances becomes a forward exchange, which
has no place for in-flight data. If the checkpoint fails, the job stays as it was. If a subtask fails before
the checkpoint is complete, the job restarts at the old parallelism.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointSucceeded,
    OnAnswer,
)
from penstock.runtime.graph.job_graph import has_room_for_in_flight_data
from penstock.runtime.job.automatic_checkpoints import FinalCheckpoint
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import (
    JobState,
    RescaleAnswer,
    RescaleRecord,
    RescaleRefused,
    RescaleRequest,
    RescaleStarted,
    StopRequest,
)
from penstock.runtime.job.states.base import AttemptStop, State
from penstock.runtime.job.states.ending import (
    ActiveAttempt,
    Cancelling,
    Failing,
    Finishing,
    FinishingStop,
)
from penstock.runtime.job.states.restarting_region import StoppingRegion
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.ids import SubtaskId


class Stopping(ActiveAttempt):
    """Takes the job's last savepoint and waits until every subtask has finished."""

    name = JobState.STOPPING

    def __init__(
        self, job: JobContext, request: StopRequest, on_answer: OnAnswer, reported: Iterable[SubtaskId] = ()
    ) -> None:
        super().__init__(job)
        self._request = request
        self._on_answer = on_answer
        self._reported = list(reported)

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

    def end_of_data(self, subtask: SubtaskId) -> None:
        self._reported.append(subtask)
        if self.job.coordinator is not None:
            self.job.coordinator.data_ended(subtask)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        self.job.subtask_finished(subtask)
        self._finish_if_all_have()

    def _answered(self, answer: CheckpointAnswer) -> None:
        self._on_answer(answer)
        job = self.job
        if job.state is not self:
            return
        if isinstance(answer, CheckpointSucceeded):
            job.stopped_with = answer.checkpoint
            self._finish_if_all_have()
        elif answer.checkpoint_id is None:
            # The savepoint was never triggered. Otherwise the coordinator fails the attempt after this call.
            job.enter(job.running(job, self._reported), f"it was not stopped: {_why(answer)}")

    def _finish_if_all_have(self) -> None:
        if self.job.stopped_with is not None and not self.job.planner.unfinished:
            self.job.enter(FinishingStop(self.job))


def _why(answer: CheckpointFailed) -> str:
    return f"{answer.reason.value}: {answer.detail}" if answer.detail else answer.reason.value


class Rescaling(State):
    """Takes a checkpoint, stops the subtasks and lets the next attempt begin."""

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
        # No periodic checkpoint follows. This one is aligned if the new graph can't restore data in flight.
        coordinator.stop_periodic()
        aligned = not has_room_for_in_flight_data(job.graph.job, job.graph.job_at(new_parallelism))
        coordinator.trigger(urgent=True, aligned=aligned, on_answer=self._on_checkpoint)

    def leave(self) -> None:
        self._answer(
            RescaleRefused("the job was cancelled, or it failed and restarts at the old parallelism")
        )

    def cancel(self) -> None:
        self.job.enter(Cancelling(self.job, self._stop), "cancelled")

    def failed(self, cause: FailureCause) -> None:
        if not self._stop.has_begun:
            self.job.enter(Failing(self.job, cause), str(cause))

    def end_of_data(self, subtask: SubtaskId) -> None:
        self._reported.append(subtask)
        if self.job.coordinator is not None:
            self.job.coordinator.data_ended(subtask)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        self.job.subtask_finished(subtask)

    def _on_checkpoint(self, answer: CheckpointAnswer) -> None:
        job = self.job
        if job.state is not self:
            return
        if not isinstance(answer, CheckpointSucceeded):
            why = f"its checkpoint failed: {answer.detail or answer.reason.value}"
            self._answer(RescaleRefused(why))
            job.enter(job.running(job, self._reported), f"it was not rescaled: {why}")
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


class Running(ActiveAttempt):
    """Takes checkpoints until all subtasks have finished.

    Args:
        reported: Subtasks that reported the end of their data before this state was entered.
    """

    name = JobState.RUNNING

    def __init__(self, job: JobContext, reported: Iterable[SubtaskId] = ()) -> None:
        super().__init__(job)
        self._final: FinalCheckpoint | None = None
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

    def stop(self, request: StopRequest, on_answer: OnAnswer) -> bool:
        if self.job.coordinator is None:
            return False
        self.job.enter(Stopping(self.job, request, on_answer, self._reported), "stop with a savepoint")
        return True

    def rescale(self, request: RescaleRequest) -> bool:
        if self.job.coordinator is None:
            return False
        self.job.enter(Rescaling(self.job, request, self._reported), "rescale")
        return True

    def failed(self, cause: FailureCause) -> None:
        job = self.job
        region = job.region_to_restart(cause)
        if region is None:
            job.enter(Failing(job, cause), str(cause))
        else:
            job.enter(StoppingRegion(job, cause, region, self._reported), f"the region of {cause}")

    def end_of_data(self, subtask: SubtaskId) -> None:
        if self._final is not None and self.job.coordinator is not None:
            self.job.coordinator.data_ended(subtask)
            self._final.end_of_data(subtask)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        self.job.subtask_finished(subtask)
        if self._final is not None:
            self._final.check()
        self._finish_if_all_have()

    @property
    def _reported(self) -> Collection[SubtaskId]:
        return self._early if self._final is None else self._final.reported

    def _finish_if_all_have(self) -> None:
        if self.job.state is self and not self.job.planner.unfinished_count:
            self.job.enter(Finishing(self.job))
