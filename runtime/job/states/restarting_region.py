"""`RestartingRegion`: one region has failed and restarts; the others continue (Flink's region failover).

The steps, in this order:

1. Every pending checkpoint is aborted, because the region can't take part any more. None is begun until the
   region runs again. Subtasks of other regions are only notified of the abort.
2. The region's subtasks are stopped. Further failures of them are secondary.
3. If the record of a checkpoint is being written, its outcome is awaited: the region may restart from that
   checkpoint. It may be complete for the others as well, so they are notified again of the restored one.
4. A new attempt is written into the log, as for a whole restart. So attempt numbers stay unique over all
   JobMasters, and a fenced JobMaster notices it here.
5. Only the region is deployed under the new number. The other subtasks keep theirs: every message is checked
   against the attempt of its subtask.

A damaged checkpoint is a special case. Where the user allows an older one, the whole job starts from it. A
region alone would not fit. Subtasks elsewhere have finished with the damaged checkpoint. And the coordinators
of the region's sources have forgotten which splits that checkpoint covers. This counts as one restart.

Regions share nothing, so the region may go back to the last checkpoint while the others do not. The next
checkpoint is consistent again, because no record goes from one region to another.

Any other failure meanwhile fails the whole attempt, which is rare and simple. Only one write to the log may
be in progress at a time: events that would begin another one wait for its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.runtime.config.restart import GiveUp, RestartAfter
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failover import Region
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_ledger import AttemptStart, BeginOutcome, OnlyOlder
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.failing import Cancelling, Failing
from penstock.runtime.ports import Cancellable
from penstock.runtime.snapshot.ids import SubtaskId

#: Why the whole job restarts.
_ONLY_OLDER: Final = "the newest checkpoint is damaged: the whole job starts from an older one"


class RestartingRegion(State):
    """Stops a region and starts it again.

    Args:
        cause: Why the region failed.
        region: Its subtasks.
        reported: Subtasks that have reported the end of their data.
        running: Makes the state for when all is well again, from the reports that still hold.
    """

    name = JobState.RESTARTING

    def __init__(
        self,
        job: JobContext,
        cause: FailureCause,
        region: Region,
        reported: Iterable[SubtaskId],
        running: Callable[[frozenset[SubtaskId]], State],
    ) -> None:
        super().__init__(job)
        self._cause = cause
        self._region = region
        self._reported = set(reported) - region
        self._running = running
        self._stopped = self._log_known = self._decided = False
        self._writing = self._deploying = self._starting = False
        self._instead: Callable[[], None] | None = None
        self._timer: Cancellable | None = None

    def enter(self) -> None:
        """Stop the region."""
        job = self.job
        job.failures.attempt_failed(job.attempt, job.clock.now(), self._cause)
        job.leave_out(self._region, str(self._cause))
        if job.state is not self:
            return  # a savepoint that was to stop the job was aborted with the others: the job fails
        job.gateway.stop_region(job.attempt, self._region)
        job.when_log_is_known(self._on_log_known)

    def leave(self) -> None:
        """Cancel what is awaited."""
        if self._timer is not None:
            self._timer.cancel()

    def region_stopped(self) -> bool:
        """Begin the new attempt, as soon as no record is being written."""
        self._stopped = True
        self._decide()
        return True

    def deployed(self) -> bool:
        """Start the region."""
        if not self._deploying:
            return False
        self._starting = True
        self.job.gateway.start_region(self.job.attempt, self._region)
        self.job.were_started(sorted(self._region))
        return True

    def started(self) -> bool:
        """Every subtask runs again."""
        if not self._starting:
            return False
        self.job.enter(self._running(frozenset(self._reported)), "the region runs again")
        return True

    def failed(self, cause: FailureCause) -> bool:
        """A failure of the region while it stops is secondary; any other one fails the attempt."""
        if cause.subtask in self._region and not self._deploying:
            self.job.failures.also_failed(cause)
            return True
        self._then(lambda: self.job.enter(Failing(self.job, cause), str(cause)))
        return True

    def cancel(self) -> bool:
        """Stop all subtasks."""
        self._then(lambda: self.job.enter(Cancelling(self.job), "cancelled"))
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        """Remember the report of a subtask outside of the region."""
        if subtask in self._region and not self._starting:
            return False
        self._reported.add(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        """Subtasks elsewhere may finish."""
        if subtask in self._region and not self._starting:
            return False
        self.job.subtask_finished(subtask)
        return True

    def _then(self, step: Callable[[], None]) -> None:
        """Enter another state, as soon as nothing is being written into the log."""
        if not self._writing:
            step()
        elif self._instead is None:
            self._instead = step

    def _on_log_known(self) -> None:
        self._log_known = True
        self._decide()

    def _decide(self) -> None:
        job = self.job
        if job.state is not self or self._decided or not (self._stopped and self._log_known):
            return
        self._decided = True
        decision = job.restart.failed(job.ledger.age())
        if isinstance(decision, GiveUp):
            job.enter(Failing(job, self._cause, decided=decision), str(self._cause))
        else:
            self._timer = job.timers.call_later(decision.delay, self._begin)

    def _begin(self) -> None:
        job = self.job
        now, restarts, newest = job.clock.now(), job.restart.memory(), job.newest_id
        self._writing = True
        job.runner.run(
            lambda: job.ledger.begin_attempt_of_region(now, restarts, newest), self._on_begun, self._on_error
        )

    def _on_begun(self, outcome: BeginOutcome | OnlyOlder) -> None:
        job = self.job
        self._writing = False
        if isinstance(outcome, OnlyOlder):
            (self._instead or self._restart_all)()
            return
        if not isinstance(outcome, AttemptStart):
            job.fence()  # another JobMaster has begun an attempt, or ended the job
            return
        failure = job.begin_attempt_of(self._region, outcome)
        if self._instead is not None:
            self._instead()
            return
        if job.state is not self:
            return  # a coordinator could not be started, which fails the job
        if failure is not None:
            job.enter(Failing(job, failure), str(failure))
            return
        self._deploying = True
        job.gateway.deploy_region(outcome.attempt, self._region, outcome.restore)

    def _restart_all(self) -> None:
        self.job.enter(Failing(self.job, self._cause, decided=RestartAfter(0.0)), _ONLY_OLDER)

    def _on_error(self, error: BaseException) -> None:
        self._writing = False
        text = f"the attempt could not begin: {error_text(error)}"
        cause = FailureCause(text, recoverable=not isinstance(error, CorruptSnapshotError))
        if self._instead is not None:
            self._instead()
        else:
            self.job.enter(Failing(self.job, cause), text)
