"""`MasterRunner`: the decisions of a JobMaster process, which runs one job after another.

The class is single-threaded, and calls the cluster only through `MasterHost`. The actor on Ray and the
simulation's JobMaster implement it. So the simulation tests the production code.

- A process runs one job at a time. When a job has ended well, the process may wait for another job.
- A process that dies is restarted by the cluster, and continues the job that it had.
- A fenced process leaves if it is no longer registered for the job. Otherwise it dies and is restarted,
  because the cluster may soon end the process that fenced it.
- A program may take back a job that it has given to a process. Only a process that has accepted a job runs
  it, so no two processes run one job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from penstock.runtime.execution.job_lifecycle import Then
from penstock.runtime.ports import Cancellable, TimerService

#: Seconds that an ended job still answers when its process leaves, so that waiting clients learn of the end.
FAREWELL: Final = 5.0
#: Seconds that a process without a job waits for a job.
WARM: Final = 60.0
#: Seconds that a process waits for the cluster's answer while clients wait for the process.
NOTING: Final = 10.0
#: Seconds that a process waits for the cluster's answer when it takes a job, or leaves.
LAST_NOTES: Final = 60.0
#: Maximum number of waiting JobMaster processes in a cluster.
_MOST_WARM: Final = 16
#: Maximum number of jobs of a process; bounds the memory that users' code leaves behind.
_MOST_JOBS: Final = 50


class RunningJob(Protocol):
    """The part of a running job that its process uses."""

    @property
    def job_id(self) -> str: ...


JobT = TypeVar("JobT")
RunT = TypeVar("RunT", bound=RunningJob)
_Job_contra = TypeVar("_Job_contra", contravariant=True)


class MasterHost(Protocol[_Job_contra, RunT]):
    """The machine and the cluster of a `MasterRunner`.

    The cluster answers later. The answer `None` means that the cluster did not respond.
    """

    def begin(self, job: _Job_contra, *, is_restart: bool) -> RunT:
        """Start a job for which this process is registered as JobMaster."""
        ...

    def accept(self, job: _Job_contra, answer: Callable[[bool | None], None]) -> None:
        """Register this process for a job; `False` when the job was taken back."""
        ...

    def forget(self, job_id: str, within: float, answer: Callable[[bool | None], None]) -> None:
        """Unregister the process from its job; `None` if that takes more than `within` seconds."""
        ...

    def is_master(self, job_id: str, answer: Callable[[bool | None], None]) -> None:
        """Whether this process is registered as the job's JobMaster."""
        ...

    def count_waiting(self, answer: Callable[[int | None], None]) -> None: ...

    def offer(self, then: Then) -> None:
        """Offer this process to programs; calls `then` even when the cluster does not respond."""
        ...

    def withdraw_offer(self, answer: Callable[[bool | None], None]) -> None:
        """Withdraw the offer; `False` when a program has claimed the process."""
        ...

    def waits(self, run: RunT) -> None:
        """Release everything of the last job, because the process waits for another one."""
        ...

    def refuses(self) -> str | None:
        """Return the reason why the idle process can't take a job; `None` when it can."""
        ...

    def residue(self) -> str | None:
        """Return a leftover of a job that prevents another job here; `None` without one."""
        ...

    def note(self, what: str) -> None: ...

    def leave(self) -> None:
        """End the process for good."""
        ...

    def die(self, why: str) -> None:
        """End the process at once; the cluster then restarts it, unless it already has a successor."""
        ...


class MasterRunner(Generic[JobT, RunT]):
    """The decisions of a JobMaster process, which runs one job after another.

    Args:
        is_restart: Whether the cluster has restarted the process.

    Attributes:
        current: The current or last job; `None` while the process waits for a job.
    """

    def __init__(self, host: MasterHost[JobT, RunT], timers: TimerService, *, is_restart: bool) -> None:
        self._host = host
        self._timers = timers
        self._is_restart = is_restart
        self._jobs = 0
        #: Timer of the wait for a job; `None` while the process does not wait.
        self._patience: Cancellable | None = None
        self.current: RunT | None = None

    def begin(self, job: JobT | None) -> None:
        """Run the first job, or one that `take` accepted; a restarted process without a job leaves."""
        if job is None:
            self._leave()
            return
        self._jobs += 1
        self.current = self._host.begin(job, is_restart=self._is_restart)

    def running(self, job_id: str) -> RunT:
        """Return a job that runs here, or that has ended and still answers.

        Raises:
            ValueError: The process runs another job, or no job.
        """
        if self.current is None or self.current.job_id != job_id:
            msg = f"this process is not the JobMaster of {job_id}"
            raise ValueError(msg)
        return self.current

    def take(self, job: JobT, answer: Callable[[bool], None]) -> None:
        """Run another job; answers `False` when this process refuses it, or the job was taken back."""
        if self._patience is None:
            answer(False)
            return
        self._end_patience()
        if why := self._host.refuses():
            self._refuse(why)
            self._leave()
            answer(False)
            return
        self._is_restart = False

        def accepted(is_accepted: bool | None) -> None:
            if is_accepted is None:
                self._host.die("it can't begin a job that it was given")
            elif is_accepted:
                self.begin(job)
            else:
                self._refuse("the job was taken back")
                self._leave()
            answer(is_accepted is True)

        self._host.accept(job, accepted)

    def fenced(self, job_id: str) -> None:
        """Leave or die, because another process has begun an attempt of this process's job."""

        def answered(is_master: bool | None) -> None:
            if is_master is False:
                self._leave()
            else:
                self._host.die(f"another process has begun an attempt of {job_id}")

        self._host.is_master(job_id, answered)

    def job_over(self, stays: bool, then: Then) -> None:
        """End the current job: wait for another one if that is safe, else leave.

        Args:
            then: Called when this process was offered for the next job, or has decided to leave.
        """
        run = self.current
        assert run is not None, "a job that is over was begun"

        def leave(why: str) -> None:
            self._refuse(why)
            self._leave_later(run, then)

        def counted(waiting: int | None) -> None:
            if waiting is None:
                leave("it can't count the waiting processes")
            elif waiting >= _MOST_WARM:
                leave(f"{_MOST_WARM} other processes wait")
            elif why := self._host.residue():
                leave(why)
            else:
                self._host.forget(run.job_id, NOTING, forgotten)

        def forgotten(is_noted: bool | None) -> None:
            if is_noted is None:
                leave("it can't unregister from its job")
                return
            self.current = None
            self._host.waits(run)
            self._patience = self._timers.call_later(WARM, self._offer_is_over)
            self._host.offer(then)  # a job may arrive before the answer

        if not stays:
            self._leave_later(run, then)
        elif self._is_restart:
            leave("the cluster has restarted it")
        elif self._jobs >= _MOST_JOBS:
            leave(f"it has run {self._jobs} jobs")
        else:
            self._host.count_waiting(counted)

    def _leave_later(self, run: RunT, then: Then) -> None:
        """Answer clients for a while, then unregister the process from its job and leave."""

        def leave() -> None:
            self._host.forget(run.job_id, LAST_NOTES, lambda is_noted: self._leave())

        self._timers.call_later(FAREWELL, leave)
        then()

    def _offer_is_over(self) -> None:
        patience = self._patience

        def answered(is_withdrawn: bool | None) -> None:
            if self._patience is not patience:
                return  # the process has taken a job meanwhile
            if is_withdrawn is False:
                # A program has just claimed the process, and gets another `WARM` seconds.
                self._patience = self._timers.call_later(WARM, self._leave)
            else:
                self._leave()  # a process without a job may always end

        self._host.withdraw_offer(answered)

    def _leave(self) -> None:
        self._end_patience()
        self._host.leave()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _refuse(self, why: str) -> None:
        self._host.note(f"this process takes no other job: {why}")
