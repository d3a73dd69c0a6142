"""`JobReport`: what a JobMaster says about its job, and what remains of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.actors.shared.fault_injection import JobMasterProcess, SubtaskProcess
from penstock.actors.shared.log_names import JOB_MASTER
from penstock.runtime.errors import ConfigurationError, JobCancelledError, JobFailedError
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.job_handle import JobResult, JobStatistics, JobStatus
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CoordinatorStatistics


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """One operator of a job.

    Attributes:
        id: Its id.
        name: What it does, for people.
        vertex: Id of the vertex (the chain) that it is in.
        parallelism: Number of its subtasks.
        is_source: Whether records come in here.
        is_sink: Whether records go out here.
    """

    id: str
    name: str
    vertex: str
    parallelism: int
    is_source: bool = False
    is_sink: bool = False


def operators_of(job: JobGraph) -> tuple[OperatorInfo, ...]:
    """All operators of a job graph, sources first."""
    return tuple(
        OperatorInfo(spec.id, spec.name, vertex.id, vertex.parallelism, spec.source is not None, spec.is_sink)
        for vertex in job.vertices
        for spec in vertex.operators
    )


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job at one moment.

    Attributes:
        job_id: Its id.
        name: The name that the user gave.
        status: Its state.
        submitted_at: Seconds since the epoch.
        duration: Seconds since then, or until the end.
        statistics: What it has done.
        graph: The job graph as a picture in plain text.
        failure: Why it has failed, or is failing or restarting right now; `None` when it has recovered.
        history: The job's transitions and their causes, oldest first, one line each.
        storage: Where its checkpoints are; `None` when it takes none.
        processes: Where its subtasks run.
        master: Where its JobMaster runs; `None` when it has left.
        warnings: What its user must be told, oldest first.
        failures: The root causes of the last attempts that failed, oldest first, also of those that it has
            recovered from.
        actor_ids: Ray's ids of all actors that ever ran a part of it, JobMaster first.
        operators: Its operators, sources first.
        checkpoints: Counters of its checkpoints; `None` without checkpointing.
        checkpoint_history: The last checkpoints, oldest first.
        savepoint: URL of the savepoint that it was stopped with; `None` when it was not.
    """

    job_id: str
    name: str
    status: JobStatus
    submitted_at: float
    duration: float
    statistics: JobStatistics
    graph: str = ""
    failure: str | None = None
    history: tuple[str, ...] = ()
    storage: str | None = None
    processes: tuple[SubtaskProcess, ...] = ()
    actor_ids: tuple[str, ...] = field(default=())
    master: JobMasterProcess | None = None
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    operators: tuple[OperatorInfo, ...] = ()
    checkpoints: CoordinatorStatistics | None = None
    checkpoint_history: tuple[CheckpointRecord, ...] = ()
    savepoint: str | None = None

    @property
    def records_in(self) -> int:
        """Records that the sources of the running attempt have read."""
        counters = self.statistics.operators
        return sum(counters[op.id].records_out for op in self.operators if op.is_source and op.id in counters)

    @property
    def records_out(self) -> int:
        """Records that the sinks of the running attempt have taken."""
        counters = self.statistics.operators
        return sum(counters[op.id].records_in for op in self.operators if op.is_sink and op.id in counters)

    def vertex_of(self, operator: str) -> str:
        """The vertex that an operator is in; `job-master` is the JobMaster itself.

        Raises:
            ConfigurationError: The job has no such operator.
        """
        if operator == JOB_MASTER:
            return JOB_MASTER
        for known in self.operators:
            if known.id == operator:
                return known.vertex
        ids = ", ".join(known.id for known in self.operators)
        msg = f"job {self.job_id} has no operator '{operator}'; it has: {ids}, and {JOB_MASTER}"
        raise ConfigurationError(msg)

    def result(self) -> JobResult:
        """How the job has ended.

        Raises:
            JobFailedError: It failed; the message begins with the root cause.
            JobCancelledError: Somebody cancelled it.
        """
        if self.status is JobStatus.FAILED:
            msg = (
                f"{self.failure or 'it failed for no known reason'}\n"
                f"(job {self.job_id} failed in attempt {self.statistics.attempt}; "
                "`penstock status` and `penstock logs` say more)"
            )
            raise JobFailedError(msg)
        if self.status is JobStatus.CANCELLED:
            msg = f"job {self.job_id} was cancelled"
            raise JobCancelledError(msg)
        return JobResult(self.job_id, self.name, self.status, self.duration, self.statistics)

    def to_record(self) -> dict[str, Any]:
        """The report as plain values for JSON."""
        record = {
            name: getattr(self, name)
            for name in (
                "job_id",
                "name",
                "submitted_at",
                "duration",
                "graph",
                "failure",
                "storage",
                "savepoint",
            )
        }
        record["status"] = self.status.value
        record["history"] = list(self.history)
        record["failures"] = list(self.failures)
        record["actor_ids"] = list(self.actor_ids)
        record["warnings"] = list(self.warnings)
        record["operators"] = [asdict(operator) for operator in self.operators]
        record["checkpoints"] = None if self.checkpoints is None else self.checkpoints.to_dict()
        record["checkpoint_history"] = [each.to_dict() for each in self.checkpoint_history]
        statistics = asdict(self.statistics)
        statistics["status"] = self.statistics.status.value
        record["statistics"] = statistics
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | JobReport) -> JobReport:
        """A report from its plain values; processes are not kept.

        Example:
            >>> statistics = JobStatistics(JobStatus.FINISHED, attempt=2, restarts=1)
            >>> report = JobReport("j-1", "j", JobStatus.FINISHED, 0.0, 2.5, statistics)
            >>> JobReport.from_record(report.to_record()) == report
            True
        """
        if isinstance(record, JobReport):
            return record
        given = dict(record)
        statistics = dict(given.pop("statistics"))
        statistics["status"] = JobStatus(statistics["status"])
        statistics["operators"] = {
            operator: OperatorStatistics(**counters) for operator, counters in statistics["operators"].items()
        }
        checkpoints = given.pop("checkpoints", None)
        return cls(
            operators=tuple(OperatorInfo(**each) for each in given.pop("operators", ())),
            checkpoints=None if checkpoints is None else CoordinatorStatistics(**checkpoints),
            checkpoint_history=tuple(
                CheckpointRecord.from_dict(each) for each in given.pop("checkpoint_history", ())
            ),
            status=JobStatus(given.pop("status")),
            statistics=JobStatistics(**statistics),
            history=tuple(given.pop("history")),
            failures=tuple(given.pop("failures", ())),
            actor_ids=tuple(given.pop("actor_ids")),
            warnings=tuple(given.pop("warnings")),
            **given,
        )
