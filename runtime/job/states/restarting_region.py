"""`RestartingRegion`: one region has failed and restarts; the others continue (Flink's region failover).

The steps, in this order:

1. Every pending checkpoint is aborted, because the region can't take part any more. No checkpoint begins
   until the region runs again.
2. The region's subtasks are stopped. Further failures in the region are secondary.
3. If the record of a checkpoint is being written, the outcome of the write is awaited: the region may restart
   from that checkpoint. Then the restart strategy sets a delay, or the job fails.
4. After the delay, a new attempt is written into the log. So attempt numbers stay unique across all
   JobMasters, and a JobMaster that another one has replaced learns of it here.
5. The other regions are notified again of the checkpoint from which the region restarts, because its record
   may have been found only now.
6. Only the region is deployed under the new number. The other subtasks keep their attempts: every message is
   checked against the attempt of its subtask.

If the checkpoint is damaged and the user allows an older checkpoint, the whole job starts from the older one.
A region alone can't use it, for two reasons. For the other regions the damaged checkpoint is complete. And
the coordinators of the region's sources have forgotten which splits they assigned after the older checkpoint.
The whole job's start counts as one restart.

Regions share nothing, so the region may go back to the last checkpoint while the others do not. The next
checkpoint is consistent again, because no record goes from one region to another. A failure outside the
region fails the whole attempt. So does a failure in the region after its deployment has begun.

The states are named after the steps: `StoppingRegion`, `DelayingRegion`, `BeginningRegion`,
`DeployingRegion`, `StartingRegion`. In all of them, users see the job as *restarting*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.runtime.config.restart import GiveUp, RestartAfter
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failover import FailureCause, Region
from penstock.runtime.job.job_ledger import AttemptStart, BeginOutcome, OnlyOlder
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import AttemptStop, State
from penstock.runtime.job.states.ending import ActiveAttempt, Cancelling, Failing
from penstock.runtime.snapshot.ids import SubtaskId

#: Reason for a restart of the whole job.
_ONLY_OLDER: Final = "the newest checkpoint is damaged: the whole job starts from an older one"


@dataclass(frozen=True, slots=True)
class RegionRestart:
    """The restart of a region.

    Attributes:
        reported: Subtasks that have reported the end of their data; the region's subtasks report it again.
    """

    cause: FailureCause
    region: Region
    reported: set[SubtaskId]


class RestartingRegion(ActiveAttempt):
    name = JobState.RESTARTING

    def __init__(self, job: JobContext, restart: RegionRestart) -> None:
        super().__init__(job)
        self._restart = restart

    def failed(self, cause: FailureCause) -> None:
        """Record a failure of the region as secondary; any other failure fails the attempt."""
        if cause.subtask in self._restart.region:
            self.job.failures.also_failed(cause)
        else:
            self.job.enter(Failing(self.job, cause), str(cause))

    def end_of_data(self, subtask: SubtaskId) -> None:
        if subtask not in self._restart.region:
            self._restart.reported.add(subtask)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        if subtask not in self._restart.region:
            self.job.subtask_finished(subtask)


class StoppingRegion(RestartingRegion):
    """Waits until the region has stopped and the outcome of a record that is being written is known."""

    def __init__(
        self, job: JobContext, cause: FailureCause, region: Region, reported: Iterable[SubtaskId]
    ) -> None:
        super().__init__(job, RegionRestart(cause, region, set(reported) - region))
        self._stop = AttemptStop(job, region)

    def enter(self) -> None:
        job, cause = self.job, self._restart.cause
        job.failures.attempt_failed(job.attempt, job.clock.now(), cause)
        job.leave_out(self._restart.region, str(cause))
        if job.state is self:  # aborting the savepoint of a stop fails the whole attempt
            self._stop.begin(self._decide)

    def _decide(self) -> None:
        job, cause = self.job, self._restart.cause
        decision = job.restart.failed(job.ledger.age())
        if isinstance(decision, GiveUp):
            job.enter(Failing(job, cause, decided=decision), str(cause))
        else:
            job.enter(DelayingRegion(job, self._restart, decision.delay))


class DelayingRegion(RestartingRegion):
    """Waits for the delay of the restart strategy, in seconds."""

    def __init__(self, job: JobContext, restart: RegionRestart, delay: float) -> None:
        super().__init__(job, restart)
        begin = partial(job.enter, BeginningRegion(job, restart))
        self._timer = job.timers.call_later(delay, begin)

    def leave(self) -> None:
        self._timer.cancel()


class BeginningRegion(RestartingRegion):
    """Waits until the new attempt is in the log.

    Only one record may be written at a time. So a failure or a cancellation waits for the outcome.
    """

    def __init__(self, job: JobContext, restart: RegionRestart) -> None:
        super().__init__(job, restart)
        #: The state that the job enters instead of deploying the region, and the cause.
        self._instead: tuple[State, str] | None = None

    def enter(self) -> None:
        job = self.job
        now, restarts, newest = job.clock.now(), job.restart.memory(), job.newest_id
        job.runner.run(
            lambda: job.ledger.begin_attempt_of_region(now, restarts, newest), self._on_begun, self._on_error
        )

    def failed(self, cause: FailureCause) -> None:
        if cause.subtask in self._restart.region:
            self.job.failures.also_failed(cause)
        else:
            self._instead = self._instead or (Failing(self.job, cause), str(cause))

    def cancel(self) -> None:
        self._instead = self._instead or (Cancelling(self.job), "cancelled")

    def _on_begun(self, outcome: BeginOutcome | OnlyOlder) -> None:
        job, restart = self.job, self._restart
        match outcome:
            case AttemptStart():
                failure = job.begin_attempt_of(restart.region, outcome)
                if failure is not None and self._instead is None:
                    self._instead = Failing(job, failure), str(failure)
                job.enter(*(self._instead or (DeployingRegion(job, restart, outcome), "")))
            case OnlyOlder():
                whole_job = Failing(job, restart.cause, decided=RestartAfter(0.0))
                job.enter(*(self._instead or (whole_job, _ONLY_OLDER)))
            case _:
                job.fence()  # another JobMaster has begun an attempt, or ended the job

    def _on_error(self, error: BaseException) -> None:
        text = f"the attempt could not begin: {error_text(error)}"
        cause = FailureCause(text, recoverable=not isinstance(error, CorruptSnapshotError))
        self.job.enter(*(self._instead or (Failing(self.job, cause), text)))


class DeployingRegion(RestartingRegion):
    def __init__(self, job: JobContext, restart: RegionRestart, start: AttemptStart) -> None:
        super().__init__(job, restart)
        self._start = start

    def enter(self) -> None:
        self.job.gateway.deploy(self._start.attempt, self._restart.region, self._start.restore)

    def failed(self, cause: FailureCause) -> None:
        self.job.enter(Failing(self.job, cause), str(cause))

    def deployed(self) -> None:
        self.job.enter(StartingRegion(self.job, self._restart))


class StartingRegion(RestartingRegion):
    """Waits until the region runs; a short-lived subtask may already have finished."""

    def enter(self) -> None:
        region = self._restart.region
        self.job.gateway.start(self.job.attempt, region)
        self.job.operators.started(sorted(region))

    def failed(self, cause: FailureCause) -> None:
        self.job.enter(Failing(self.job, cause), str(cause))

    def started(self) -> None:
        self.job.enter(self.job.running(self.job, frozenset(self._restart.reported)), "the region runs again")

    def end_of_data(self, subtask: SubtaskId) -> None:
        self._restart.reported.add(subtask)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        self.job.subtask_finished(subtask)
