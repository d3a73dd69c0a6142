"""The handle, status and result of a submitted job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Protocol

from penstock.runtime.config.checks import Duration
from penstock.runtime.misspelt_names import NearestEnumMembers, NearestMembers
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails


class JobStatus(Enum, metaclass=NearestEnumMembers):
    """The states of a job, as its users see them (Flink's `JobStatus`)."""

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    CANCELLING = "cancelling"
    FAILING = "failing"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended for good.

        Example:
            >>> [status.value for status in JobStatus if status.is_terminal]
            ['finished', 'cancelled', 'failed']
        """
        return self in (JobStatus.FINISHED, JobStatus.CANCELLED, JobStatus.FAILED)


@dataclass(frozen=True, slots=True)
class JobStatistics(NearestMembers):
    """Counters of a job so far.

    Attributes:
        status: Its state.
        attempt: Number of the attempt that runs, from 1; 0 before the first.
        restarts: How often it restarted because something failed; rescales are none.
        completed_checkpoints: Checkpoints completed, over all attempts. Those of the last two seconds before
            a JobMaster's death may be missing: it did not live to tell.
        failed_checkpoints: Checkpoints failed or aborted, in the same way.
        last_checkpoint_id: The newest completed one; `None` when there is none.
        operators: Counters of each operator by id, summed over its subtasks in the running attempt.
    """

    status: JobStatus
    attempt: int = 0
    restarts: int = 0
    completed_checkpoints: int = 0
    failed_checkpoints: int = 0
    last_checkpoint_id: int | None = None
    operators: Mapping[str, OperatorStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobResult(NearestMembers):
    """How a job ended that finished.

    Attributes:
        name: The name that the user gave.
        status: `FINISHED`; a job that ends otherwise raises instead.
        duration: Seconds from submission to the end.
        statistics: What it did.
    """

    job_id: str
    name: str
    status: JobStatus
    duration: float
    statistics: JobStatistics


@dataclass(frozen=True, slots=True)
class CheckpointResult(NearestMembers):
    """A checkpoint that was taken by hand and is complete.

    Attributes:
        path: URL of its folder, for `restore_from`. It belongs to the job, which deletes it when `retain`
            newer checkpoints are complete. A savepoint stays.
        size: Bytes of all its state, also in files of earlier checkpoints.
        written_bytes: New bytes that the subtasks wrote for it.
        duration: Seconds from its trigger until the job could restart from it.

    Example:
        >>> taken = CheckpointResult(7, "/jobs/words-1/chk-7-1", 4096, 512, 0.25)
        >>> taken.path, taken.size - taken.written_bytes
        ('/jobs/words-1/chk-7-1', 3584)
    """

    checkpoint_id: int
    path: str
    size: int
    written_bytes: int
    duration: float

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
        return asdict(self)


class JobInterface(Protocol):
    """A page that shows a job in a browser."""

    @property
    def address(self) -> str:
        """Where its server is."""
        ...

    @property
    def login(self) -> str:
        """The address that begins a session, once."""
        ...

    def close(self) -> None:
        """End the server; jobs go on."""
        ...


class JobHandle(Protocol):
    """A submitted job. The job goes on when its handle is thrown away."""

    @property
    def job_id(self) -> str:
        """The job's id: lower-case letters, digits and `-`."""
        ...

    @property
    def name(self) -> str:
        """The name that the user gave."""
        ...

    def status(self) -> JobStatus:
        """The job's state right now."""
        ...

    def wait(self, timeout: Duration | None = None, *, progress: bool = False) -> JobResult:
        """Wait for the job to end.

        Args:
            timeout: Seconds to wait at most; `None` waits for ever.
            progress: Show a live line meanwhile: records in and out, last checkpoint, restarts.

        Raises:
            JobFailedError: It failed; the message begins with the root cause.
            JobCancelledError: Somebody cancelled it.
            JobTimeoutError: It still runs after `timeout`, and goes on running.
        """
        ...

    def cancel(self) -> None:
        """End the job without a savepoint; does nothing when it has ended."""
        ...

    def ui(self, *, open_browser: bool = True) -> JobInterface:
        """Show the job in a browser, as long as this program runs.

        Args:
            open_browser: Open one; without it the answer says where to look.
        """
        ...

    def checkpoint(self, *, full: bool = False, timeout: Duration | None = None) -> CheckpointResult:
        """Take a checkpoint besides the periodic ones, and wait until it is complete.

        Args:
            full: Write all state anew, so that the checkpoint names no file of an earlier one.
            timeout: Seconds to wait at most; `None` waits for ever.

        Raises:
            CheckpointError: There is none; says why.
            JobTimeoutError: It is not complete after `timeout`, and goes on.
        """
        ...

    def savepoint(self, target: str | None = None, *, timeout: Duration | None = None) -> str:
        """Take a savepoint while the job goes on.

        Args:
            target: Folder (path or URL) in which it gets a folder of its own; by default it is in the
                checkpoint storage.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            URL of the savepoint's folder.

        Warns:
            SavepointStillNeededWarning: It is complete, but no checkpoint could be taken after it, so the job
                would restart from it. Its files must stay until the job has completed a checkpoint.

        Raises:
            SavepointError: There is none; says why.
            JobTimeoutError: It is not complete after `timeout`, and goes on.
        """
        ...

    def stop(
        self, savepoint: str | None = None, *, drain: bool = False, timeout: Duration | None = None
    ) -> str:
        """Take a savepoint and end the job; nothing is read after it.

        Args:
            savepoint: Where, as for `savepoint`.
            drain: Let event time go to its end first, so that what waits for it comes out: open windows fire
                unfinished. Without it they stay in the savepoint, for the job that goes on from there.
            timeout: Seconds to wait at most; `None` waits for ever.

        Returns:
            URL of the savepoint's folder.

        Raises:
            SavepointError: The job was not stopped, or is being stopped already in another way; says why.
            JobTimeoutError: It has not ended after `timeout`; it goes on stopping.
        """
        ...

    def rescale(
        self,
        parallelism: Mapping[str, int] | None = None,
        *,
        timeout: Duration | None = None,
        **operators: int,
    ) -> None:
        """Change the parallelism of operators while the job runs: save state, redeploy, go on.

        Args:
            parallelism: By operator id; an operator takes its chain along.
            timeout: Seconds to wait at most; `None` waits for ever.
            **operators: The same, for ids that are Python names: `rescale(count=4)`.

        Raises:
            RescaleError: The job goes on as it was; says why.
            JobTimeoutError: It does not run at the new parallelism after `timeout`; the change goes on.
        """
        ...

    def checkpoints(self) -> Sequence[CheckpointDetails]:
        """The job's last checkpoints and savepoints with sizes, durations and alignments, oldest first."""
        ...

    def statistics(self) -> JobStatistics:
        """Counters of the job so far."""
        ...

    def describe(self) -> str:
        """The job graph as a picture in plain text."""
        ...
