"""`JobLifecycle`: the decisions about one job in the process of its JobMaster, from its start to its end.

The class is single-threaded and never calls the cluster itself. The actor on Ray and the simulation's
JobMaster implement `JobHost`. So the simulation tests the production code.

- A restarted JobMaster takes over the living processes of subtasks. Then it begins an attempt in the decision
  log, which fences the previous attempt.
- A job without checkpoints has no log, so its progress is unknown. A restarted process fails such a job,
  which would otherwise overwrite its own output.
- A restarted process waits for storage that it can't reach; a new process fails its job.
- A cancellation is accepted at any time, even while the job can't be started. Such a job ends without a
  record in its log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.errors import DeploymentError, JobIdTakenError, StorageTimeoutError
from penstock.runtime.execution.fleet import Fleet
from penstock.runtime.execution.heartbeats import Watch
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import Cancellable, TimerService

#: Seconds between tries of a restarted JobMaster that can't read its storage; about ten minutes in total.
_STORAGE_RETRIES: Final = (1.0, 2.0, 5.0, 10.0, *(30.0,) * 19)
#: Number of tries for a cancelled job: eight seconds in total.
_TRIES_OF_CANCELLED: Final = 4
#: The failure of a job without a log whose JobMaster has died.
_NOTHING_KNOWN: Final = (
    "the JobMaster's process died, and the job takes no checkpoints, so its progress is unknown. "
    "Check what its sinks have written, then submit it again; with JobConfig(checkpointing=...) it would "
    "have continued"
)

Then: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class JobLookup:
    """Facts about a job before its start, from the cluster and the job's settings.

    Attributes:
        has_log: Whether the job takes checkpoints, so that its decision log is in storage.
        has_ended: Whether an earlier JobMaster has reported the job's end.
    """

    has_log: bool
    has_ended: bool
    reuses_processes: bool


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A failed step of a job's start.

    Attributes:
        may_pass: Whether another try may succeed: the storage or the cluster could not be reached.
    """

    error: BaseException
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class StartedJob:
    scheduler: JobScheduler
    watch: Watch


class JobHost(Protocol):
    """Carries out the steps of a job's start and end that a `JobLifecycle` requests."""

    def look_up(self, answer: Callable[[JobLookup | StartFailure], None]) -> None:
        """Look up the job's past in the cluster, and load the job.

        A cancellation that the cluster remembers goes to `JobLifecycle.cancel` before the job is loaded.
        """
        ...

    def open_storage(self, answer: Callable[[Fenced | StartFailure | None], None]) -> None:
        """Open the checkpoint storage; answers `Fenced` if this submission now has another JobMaster."""
        ...

    def adopt(self, answer: Callable[[Fleet | StartFailure], None]) -> None:
        """Take over the processes that an earlier JobMaster of the job has left."""
        ...

    def start_scheduler(self, *, is_restart: bool) -> StartedJob | StartFailure: ...

    def note(self, what: str, error: BaseException) -> None: ...

    def not_started(self, error: BaseException, *, is_cancelled: bool) -> None:
        """Note that the job ends without a scheduler: it was cancelled or has failed."""
        ...

    def started(self) -> None:
        """Begin to pass clients' requests to the scheduler."""
        ...

    def keep_last_report(self, then: Then) -> None:
        """Write an ended job's report to storage: the earlier process may have died before it did so."""
        ...

    def close(self, *, in_storage: bool, stays: bool, then: Callable[[bool], None]) -> None:
        """Store the report of the ended job and end its work, then answer whether another job may follow.

        Args:
            in_storage: Whether the checkpoint storage keeps the report, too.
            stays: Whether another job may follow; the call then waits for work in other threads.
        """
        ...

    def ended(self) -> None:
        """Answer the clients that wait for the end."""
        ...


class JobLifecycle:
    """The decisions about one job, from its start to its end.

    Args:
        is_restart: Whether the cluster has restarted the process that ran the job.
        on_over: Called when the report is stored; receives whether another job may follow, and a callback
            that answers the waiting clients.
        on_fenced: Called when another JobMaster has begun an attempt of the job.

    Attributes:
        scheduler: Scheduler of the job; `None` until the job has started, and if it can't be started.
    """

    def __init__(
        self,
        host: JobHost,
        timers: TimerService,
        *,
        is_restart: bool,
        on_over: Callable[[bool, Then], None],
        on_fenced: Then,
    ) -> None:
        self._host = host
        self._timers = timers
        self._is_restart = is_restart
        self._on_over = on_over
        self._on_fenced = on_fenced
        self.scheduler: JobScheduler | None = None
        self._watch: Watch | None = None
        self._fleet: Fleet | None = None
        self._known = JobLookup(has_log=False, has_ended=False, reuses_processes=False)
        self._tries = 0
        self._pause: Cancellable | None = None
        self._is_cancelled = False
        #: Whether the storage holds another job's files under this job's id.
        self._is_taken = False
        self._is_over = False

    def cancel(self) -> bool:
        """Cancel the job; return whether the cluster must remember that for the next JobMaster."""
        is_first, self._is_cancelled = not self._is_cancelled, True
        if is_first and self._pause is not None:
            self._pause.cancel()
            self.start()
        if self.scheduler is not None:
            self.scheduler.cancel()
        return self.may_run

    @property
    def may_run(self) -> bool:
        """Whether the job has not ended yet."""
        return not (self._is_over if self.scheduler is None else self.scheduler.state.is_terminal)

    def fenced(self) -> None:
        """Report that another JobMaster has begun an attempt of the job, unless the job is over."""
        if not self._is_over:
            self._on_fenced()

    def look(self, then: Then) -> None:
        """Read the counters of the running subtasks, then call `then`."""
        if self._watch is None or self._is_over:
            then()
        else:
            self._watch.look(then)

    def job_ended(self) -> None:
        """Handle the end of the job later, because the scheduler may call this while it handles an event."""
        self._timers.call_later(0.0, self._end)

    # -- the start ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._pause = None
        self._tries += 1
        self._host.look_up(self._looked_up)

    def _looked_up(self, known: JobLookup | StartFailure) -> None:
        if isinstance(known, StartFailure):
            self._start_failed(known)
            return
        self._known = known
        if known.has_log and not self._has_ended_before():
            self._host.open_storage(self._opened)
        else:
            self._host.adopt(self._adopted)

    def _has_ended_before(self) -> bool:
        """Whether an earlier process ended the job, but died before it had cleaned up."""
        return self._is_restart and self._known.has_ended

    def _opened(self, outcome: Fenced | StartFailure | None) -> None:
        if isinstance(outcome, StartFailure):
            self._start_failed(outcome)
        elif isinstance(outcome, Fenced):
            self.fenced()  # the job never counts as started here, so no client considers it ready
        else:
            self._host.adopt(self._adopted)

    def _adopted(self, fleet: Fleet | StartFailure) -> None:
        if isinstance(fleet, StartFailure):
            self._start_failed(fleet)
            return
        self._fleet = fleet
        if self._has_ended_before():
            # The log has no record of the end if its storage did not answer.
            if self._known.has_log:
                self._host.keep_last_report(self._leave_again)
            else:
                self._leave_again()
        elif self._is_restart and not self._known.has_log and not self._is_cancelled:
            self._start_failed(StartFailure(DeploymentError(_NOTHING_KNOWN)))
        else:
            self._start_scheduler()

    def _leave_again(self) -> None:
        assert self._fleet is not None, "it was adopted"
        self._fleet.leave(lambda: self._over(False))

    def _start_scheduler(self) -> None:
        started = self._host.start_scheduler(is_restart=self._is_restart)
        if isinstance(started, StartFailure):
            self._start_failed(started)
            return
        self.scheduler, self._watch = started.scheduler, started.watch
        if self._is_cancelled:
            self.scheduler.cancel()
        self._host.started()

    def _start_failed(self, failure: StartFailure) -> None:
        if self._is_restart and failure.may_pass and not self._is_enough(failure.error):
            self._host.note("it can't be started yet", failure.error)
            self._pause = self._timers.call_later(_STORAGE_RETRIES[self._tries - 1], self.start)
            return
        is_cancelled = self._is_restart and self._is_cancelled
        self._is_taken = isinstance(failure.error, JobIdTakenError)
        self._host.not_started(failure.error, is_cancelled=is_cancelled)
        if is_cancelled and self._fleet is None:
            self._host.adopt(self._adopted_to_end)
        else:
            self._end()

    def _is_enough(self, error: BaseException) -> bool:
        if self._tries > len(_STORAGE_RETRIES):
            return True
        # A hanging storage was already awaited for `storage_timeout`.
        was_patient = self._tries >= _TRIES_OF_CANCELLED or isinstance(error, StorageTimeoutError)
        return self._is_cancelled and was_patient

    def _adopted_to_end(self, fleet: Fleet | StartFailure) -> None:
        if isinstance(fleet, StartFailure):
            self._host.note("its processes end when their leases expire", fleet.error)
        else:
            self._fleet = fleet
        self._end()

    # -- the end --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        self.look(self._leave)

    def _leave(self) -> None:
        if self._watch is not None:
            self._watch.end()
        if self._fleet is None:
            self._close()
        else:
            self._fleet.leave(self._close)

    def _close(self) -> None:
        scheduler = self.scheduler
        ended_well = scheduler is not None and scheduler.state in {JobState.FINISHED, JobState.CANCELLED}
        is_fenced = scheduler is not None and scheduler.statistics().is_fenced
        self._host.close(
            in_storage=self._known.has_log and not (self._is_taken or is_fenced),
            stays=ended_well and self._known.reuses_processes,
            then=self._over,
        )

    def _over(self, stays: bool) -> None:
        self._is_over = True
        self._on_over(stays, self._host.ended)
