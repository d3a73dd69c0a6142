"""Executors, which run job graphs, and the handle of a submitted job.

This package only builds graphs. An executor is an entry point of the group `penstock.executors`;
`penstock.actors` registers `ray`. Reading the metadata of installed packages is the only side effect allowed
here. It is read in the program that submits a job, never in the job's processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from enum import Enum
from html import escape
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from shlex import quote
from typing import Any, Final, Protocol, runtime_checkable

from penstock.runtime.config.job_config import JobConfig, RocksDB
from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec, sinks_of
from penstock.runtime.names import NearestEnumMembers, NearestMembers
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.sinks import ChecksJobConfig
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails
from penstock.runtime.time.durations import Duration


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
        """Whether the job has ended for good: finished, cancelled or failed."""
        return self in (JobStatus.FINISHED, JobStatus.CANCELLED, JobStatus.FAILED)


@dataclass(frozen=True, slots=True)
class JobStatistics(NearestMembers):
    """Counters of a job so far.

    Attributes:
        status: The job's state.
        attempt: Number of the running attempt, from 1; 0 before the first attempt.
        restarts: Number of restarts after failures, without rescales.
        completed_checkpoints: Completed checkpoints and savepoints of all attempts.
        failed_checkpoints: Failed or aborted checkpoints and savepoints of all attempts. Those of the last
            two seconds before a JobMaster's death may be missing.
        last_checkpoint_id: The newest completed checkpoint; `None` without any.
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
    """The result of a job that finished.

    Attributes:
        name: The name that the user gave.
        status: `FINISHED`; a job that ends otherwise raises an error instead.
        duration: Seconds from submission to the end.
        statistics: Counters of the whole job.
        records_in: Records that the sources of the last attempt have read.
        records_out: Records that the sinks of the last attempt have taken.
        failure: The last failure, from which the job recovered; `None` without one.
        snapshot: URL from which a program can continue: the savepoint that the job was stopped with, or the
            job's folder if its checkpoints were kept. `None` if nothing was kept, or the job was drained.

    Example:
        >>> statistics = JobStatistics(JobStatus.FINISHED, completed_checkpoints=3)
        >>> print(JobResult("words-1", "words", JobStatus.FINISHED, 12.3, statistics, 1000, 40))
        words finished in 12.3 s: 1,000 records in, 40 records out, 3 checkpoints, 0 restarts
    """

    job_id: str
    name: str
    status: JobStatus
    duration: float
    statistics: JobStatistics
    records_in: int = 0
    records_out: int = 0
    failure: str | None = None
    snapshot: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.name} {self._outcome}"]
        if self.failure is not None:
            lines.append(f"last failure: {self.failure}")
        if self.snapshot is not None:
            lines.append(f"to continue: {restore_command(self.snapshot)}")
        return escaped("\n".join(lines))

    def _repr_html_(self) -> str:
        """The text as HTML, for notebooks; names and messages are escaped."""
        rows = [f"<b>{escape(self.name)}</b> <code>{escape(self.job_id)}</code>", escape(self._outcome)]
        if self.failure is not None:
            rows.append(f"last failure: <code>{escape(self.failure)}</code>")
        if self.snapshot is not None:
            rows.append(f"to continue: <code>{escape(restore_command(self.snapshot))}</code>")
        return escaped(f"<div>{'<br>'.join(rows)}</div>")

    @property
    def _outcome(self) -> str:
        counted = self.statistics
        return (
            f"{self.status.value} in {self.duration:,.1f} s: {_number(self.records_in, 'record')} in, "
            f"{_number(self.records_out, 'record')} out, "
            f"{_number(counted.completed_checkpoints, 'checkpoint')}, {_number(counted.restarts, 'restart')}"
        )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def restore_command(snapshot: str, program: str = "python PROGRAM") -> str:
    """Return the command that runs a program from a snapshot.

    Example:
        >>> restore_command("/kept/words 1")
        "penstock restore '/kept/words 1' python PROGRAM"
    """
    return f"penstock restore {quote(snapshot)} {program}"


@dataclass(frozen=True, slots=True)
class CheckpointResult(NearestMembers):
    """A completed checkpoint that a user requested.

    Attributes:
        path: URL of its folder, for `restore_from`. It belongs to the job, which deletes it when `retain`
            newer checkpoints are complete. A savepoint is not deleted.
        size: Bytes of all its state, including state in files of earlier checkpoints.
        written_bytes: New bytes that the subtasks wrote for it.
        duration: Seconds from its trigger until the job could restart from it.
    """

    checkpoint_id: int
    path: str
    size: int
    written_bytes: int
    duration: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as values that JSON can hold."""
        return asdict(self)


class JobInterface(Protocol):
    """A page that shows a job in a browser."""

    @property
    def address(self) -> str: ...

    @property
    def login(self) -> str:
        """Return an address that begins a session; it works once."""
        ...

    def close(self) -> None:
        """End the server; jobs continue."""
        ...


class JobHandle(Protocol):
    """A submitted job. The job continues when its handle is discarded.

    A `timeout` is a `timedelta` or seconds; `None` waits for ever. On timeout, a method raises
    `JobTimeoutError`; the job and the request continue.
    """

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
            progress: Show a live line while waiting: records in and out, last checkpoint, restarts.

        Raises:
            JobFailedError: The job failed; the message begins with the root cause.
            JobCancelledError: The job was cancelled.
            JobTimeoutError: The job is still running after `timeout`, and continues.
        """
        ...

    def cancel(self) -> None:
        """End the job without a savepoint; does nothing when it has ended."""
        ...

    def ui(self, *, open_browser: bool = True) -> JobInterface:
        """Show the job in a browser for as long as this program runs.

        Args:
            open_browser: Whether to open a browser; the returned object has the page's address.
        """
        ...

    def checkpoint(self, *, full: bool = False, timeout: Duration | None = None) -> CheckpointResult:
        """Take a checkpoint in addition to the periodic ones, and wait until it is complete.

        Args:
            full: Write all state again. The checkpoint then refers to no file of an earlier checkpoint,
                except files with the state of subtasks that had already finished.

        Raises:
            CheckpointError: The checkpoint failed; the message says why.
        """
        ...

    def savepoint(self, savepoint: str | None = None, *, timeout: Duration | None = None) -> str:
        """Take a savepoint while the job continues.

        Args:
            savepoint: Path or URL of the parent folder of the savepoint's own folder; by default the
                checkpoint storage.

        Returns:
            URL of the savepoint's folder.

        Warns:
            SavepointStillNeededWarning: The savepoint is complete, but no checkpoint could be taken after it,
                so the job would restart from it. Its files must stay until the next completed checkpoint.

        Raises:
            SavepointError: The savepoint failed; the message says why.
        """
        ...

    def stop(
        self, savepoint: str | None = None, *, drain: bool = False, timeout: Duration | None = None
    ) -> str:
        """Take a savepoint and end the job; no record is read after the savepoint.

        Args:
            savepoint: Parent folder, as in `savepoint`.
            drain: Advance event time to its end first, so that open windows fire before they are complete.
                Without `drain` the savepoint keeps them open for the job that continues from it.

        Returns:
            URL of the savepoint's folder.

        Raises:
            SavepointError: The job was not stopped, or is already being stopped in another way.
        """
        ...

    def rescale(
        self,
        parallelism: Mapping[str, int] | None = None,
        *,
        timeout: Duration | None = None,
        **operators: int,
    ) -> None:
        """Change the parallelism of operators while the job runs: save state, redeploy, continue.

        Args:
            parallelism: Number of subtasks by operator id; operators of one chain change together.
            **operators: Number of subtasks, for ids that are Python names: `rescale(count=4)`.

        Raises:
            RescaleError: The job continues at its old parallelism; the message says why.
        """
        ...

    def checkpoints(self) -> Sequence[CheckpointDetails]:
        """The job's last checkpoints and savepoints with sizes, durations and alignments, oldest first."""
        ...

    def statistics(self) -> JobStatistics:
        """Counters of the job so far."""
        ...

    def describe(self) -> str:
        """The job graph as a plain-text diagram."""
        ...


#: The group of entry points; each names a class or function that is called without arguments.
EXECUTOR_GROUP: Final = "penstock.executors"
#: The executor that is used when several are installed.
_DEFAULT_EXECUTOR: Final = "ray"


@runtime_checkable
class Executor(Protocol):
    """Runs jobs."""

    def submit(self, job: JobGraph, config: JobConfig) -> JobHandle:
        """Start a job and return at once.

        Raises:
            GraphError: A user's function can't be sent to the subtasks; the message names its operator.
            DeploymentError: The executor can't place the job.
        """
        ...


@runtime_checkable
class HoldsInterrupts(Protocol):
    """An executor that defers Ctrl-C between a job's submission and the wait, so that no job is lost."""

    def interrupts_held(self) -> AbstractContextManager[None]:
        """Defer interrupts inside the context, except while `JobHandle.wait` waits."""
        ...


def find_executor(installed: Iterable[EntryPoint] | None = None) -> Executor:
    """The only installed executor, or `ray` among several.

    Raises:
        ConfigurationError: No executor exists, none of several is `ray`, or the executor lacks `submit`.
    """
    found = entry_points(group=EXECUTOR_GROUP) if installed is None else installed
    points = {point.name: point for point in found}
    if not points:
        msg = (
            f"no executor is installed: there is no entry point in the group {EXECUTOR_GROUP!r}. "
            "Install penstock itself (`pip install penstock`), or pass `executor=` to the StreamEnvironment"
        )
        raise ConfigurationError(msg)
    wanted = _DEFAULT_EXECUTOR if len(points) > 1 else next(iter(points))
    if wanted not in points:
        there = ", ".join(sorted(points))
        msg = f"no executor {wanted!r} is installed, only: {there}. Pass one to the StreamEnvironment"
        raise ConfigurationError(msg)
    executor = points[wanted].load()()
    if not isinstance(executor, Executor):
        msg = f"the executor {wanted!r} ({points[wanted].value}) has no method `submit(job, config)`"
        raise ConfigurationError(msg)
    return executor


def check_job(job: JobGraph, config: JobConfig) -> None:
    """Refuse a job whose operators can't work with its settings.

    Raises:
        ConfigurationError: The settings don't fit; the message names the operator.
        GraphError: An operator can't have its state backend.
    """
    check_state_backends(job, config)
    connectors: list[tuple[str, OperatorSpec, Any]] = [
        *(("source", spec, spec.source) for vertex in job.vertices for spec in vertex.operators),
        *(("sink", spec, sink) for spec, sink in sinks_of(job)),
    ]
    for kind, spec, connector in connectors:
        if isinstance(connector, ChecksJobConfig):
            try:
                connector.check_job_config(config)
            except ConfigurationError as error:
                where = "" if spec.defined_at is None else f"{spec.defined_at}: "
                msg = f"{where}{kind} {spec.id!r}: {error}"
                raise ConfigurationError(msg) from error


#: The package that provides RocksDB.
_PACKAGE: Final = "rocksdict"


def check_state_backends(job: JobGraph, config: JobConfig) -> None:
    """Refuse operators whose state RocksDB can't hold, and RocksDB without its package.

    Raises:
        GraphError: An operator that keeps its state in columns is configured to use RocksDB.
        ConfigurationError: RocksDB is not installed.
    """
    on_rocksdb = [
        operator
        for vertex in job.vertices
        for operator in vertex.operators
        if operator.keyed and isinstance(operator.state_backend or config.state_backend, RocksDB)
    ]
    for operator in on_rocksdb:
        if operator.in_columns:
            where = "" if operator.defined_at is None else f"{operator.defined_at}: "
            msg = (
                f"{where}operator {operator.id!r}, {operator.name}, keeps its state in columns, which "
                "RocksDB can't hold: give it state_backend=HeapState()"
            )
            raise GraphError(msg)
    if on_rocksdb:
        try:
            version(_PACKAGE)
        except PackageNotFoundError:
            msg = (
                f"operator {on_rocksdb[0].id!r} keeps its state in RocksDB, but the package {_PACKAGE!r} is "
                "not installed here: pip install 'penstock[rocksdb]', here and on every node of the cluster"
            )
            raise ConfigurationError(msg) from None
