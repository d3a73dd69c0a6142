"""`JobReport`: the state and the counters of a job, as plain values for JSON.

The JobMaster builds the report and keeps it in the cluster. It writes the last report of an ended job next to
the checkpoints, too. Handles, the command line and the live line read reports and format them as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from penstock.actors.shared.job_end import JobEnd, job_end
from penstock.actors.shared.job_summaries import (
    Bottleneck,
    EdgeSummary,
    VertexSummary,
    find_bottleneck,
    summarize_edges,
    summarize_vertices,
)
from penstock.actors.shared.output_capture import JOB_MASTER, RAY
from penstock.actors.shared.slow_checkpoint import SlowCheckpoint
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.error_text import shortened
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.graph.executor import JobStatistics, JobStatus
from penstock.runtime.graph.graph_info import GraphInfo, OperatorInfo
from penstock.runtime.job.failover import FailureCause, FailureKind, FailureRecord
from penstock.runtime.job.job_state import RescaleRecord, Transition
from penstock.runtime.names import NearestMembers, nearest_name
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.redaction import without_secrets
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.plain_values import from_plain, to_plain
from penstock.runtime.task.statistics import SubtaskRates, SubtaskStatistics

#: The format that `to_dict` writes.
FORMAT: Final = 1

#: Warning for a job without checkpoints, when it is submitted and in its reports.
NO_CHECKPOINTS: Final = (
    "the job takes no checkpoints: nothing survives a failure, and sinks commit once, when the input has "
    "ended. Give StreamEnvironment a checkpointing=Checkpointing(every=...) to change that"
)

#: Maximum number of recent checkpoints in a report. It also lists some earlier failed ones and savepoints.
CHECKPOINTS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class SubtaskProcess:
    """The process of a subtask.

    Attributes:
        pid: Process id on its node.
        node_id: Ray's id of the node.
    """

    subtask: SubtaskId
    pid: int
    node_id: str


@dataclass(frozen=True, slots=True)
class JobMasterProcess:
    """The process of a JobMaster.

    Attributes:
        pid: Process id on its node.
        node_id: Ray's id of the node.
        started: Start time of the process in clock ticks since its node's boot; 0 when unknown.
    """

    pid: int
    node_id: str
    started: int = 0


@dataclass(frozen=True, slots=True)
class SubtaskInfo:
    """One subtask of a job.

    Attributes:
        subtask: Vertex and index.
        attempt: Number of the attempt.
        status: State of the subtask: created, running or finished.
        process: Process of the subtask; `None` without one.
        statistics: Counters of this attempt; `None` before the first report.
        silence: The current period without an answer from the process; `None` when it answers.
        long_call: The user's function that has been running for a long time; `None` without one.
        rates: Rates over about ten seconds; `None` before the second report, and for a subtask that is not
            running.
        counted_at: Time at which the JobMaster received the counters, in its wall-clock seconds.
        state_bytes: Bytes of state in the newest completed checkpoint; `None` without one at the current
            parallelism.
    """

    subtask: SubtaskId
    attempt: int
    status: SubtaskStatus
    process: SubtaskProcess | None = None
    statistics: SubtaskStatistics | None = None
    silence: Silence | None = None
    long_call: LongCall | None = None
    rates: SubtaskRates | None = None
    counted_at: float | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """Another process became the JobMaster after its predecessor had died.

    Attributes:
        at: Wall-clock seconds.
        process: The new process; `None` when it is not known.
    """

    at: float
    process: JobMasterProcess | None = None


#: Events in the history of a job.
HistoryEntry: TypeAlias = Transition | Takeover


@without_secrets
@dataclass(frozen=True, slots=True)
class JobReport(NearestMembers):
    """A job at one moment.

    Attributes:
        name: The name that the user gave.
        submitted_at: Seconds since the epoch.
        duration: Seconds from the submission until now, or until the end.
        statistics: Counters of the job; an operator's counters are sums over its subtasks.
        graph: Vertices and edges at the current parallelism.
        failure: Cause of the job's failure or current restart; `None` when the job has recovered.
        history: The job's transitions and changes of its JobMaster, oldest first.
        failures: The last failed attempts, oldest first, including those that the job has recovered from.
        rescales: The last changes of its parallelism, oldest first.
        subtasks: Its subtasks with their counters, sorted; empty before it is deployed.
        storage: URL of its checkpoint storage; `None` when it takes no checkpoints.
        master: Process of its JobMaster; `None` when the JobMaster has ended.
        warnings: Messages for its user, oldest first.
        checkpoints: Counters of its checkpoints; `None` without checkpointing.
        checkpoint_history: The last failed checkpoints and savepoints, then the last 20 of any kind; oldest
            first.
        savepoint: URL of the savepoint that it was stopped with; `None` when it was not.
        drained: Whether event time had advanced to its end before that savepoint.
        settings: Its configuration as text, by name; checkpoint settings begin with `checkpointing.`.
        ray_submission: Id in Ray's Jobs API of the program that has started the job; `None` if it was started
            otherwise.
        slow_checkpoint: The reason why the running or newest checkpoint takes long; `None` if it does not, or
            if no reason is known.
    """

    job_id: str
    name: str
    status: JobStatus
    submitted_at: float
    duration: float
    statistics: JobStatistics
    graph: GraphInfo = field(default_factory=GraphInfo)
    failure: FailureRecord | None = None
    history: tuple[HistoryEntry, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    rescales: tuple[RescaleRecord, ...] = ()
    subtasks: tuple[SubtaskInfo, ...] = ()
    storage: str | None = None
    master: JobMasterProcess | None = None
    warnings: tuple[str, ...] = ()
    checkpoints: CoordinatorStatistics | None = None
    checkpoint_history: tuple[CheckpointRecord, ...] = ()
    savepoint: str | None = None
    drained: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    ray_submission: str | None = None
    slow_checkpoint: SlowCheckpoint | None = None

    @property
    def operators(self) -> tuple[OperatorInfo, ...]:
        """Operators of the job, sources first."""
        return self.graph.operators

    @property
    def vertices(self) -> tuple[VertexSummary, ...]:
        """Vertices of the job with the sums over their subtasks, sources first."""
        return summarize_vertices(self.graph, self.subtasks)

    @property
    def edges(self) -> tuple[EdgeSummary, ...]:
        """Share of each edge's credits that is in use, in the order of `graph.edges`."""
        return summarize_edges(self.graph, self.subtasks)

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The vertex that limits the throughput of the job; `None` without one."""
        return find_bottleneck(self.graph, self.vertices)

    @property
    def processes(self) -> tuple[SubtaskProcess, ...]:
        """Processes of the job's subtasks."""
        return tuple(info.process for info in self.subtasks if info.process is not None)

    @property
    def transitions(self) -> tuple[Transition, ...]:
        """The job's changes of state, oldest first."""
        return tuple(entry for entry in self.history if isinstance(entry, Transition))

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

    @property
    def restored_from(self) -> str | None:
        """URL of the snapshot that the job started from; `None` for a job that started without one."""
        given = self.settings.get("restore_from", "None")
        return None if given == "None" else given

    @property
    def savepoints(self) -> tuple[CheckpointRecord, ...]:
        """The completed savepoints in `checkpoint_history`, oldest first."""
        return tuple(
            taken
            for taken in self.checkpoint_history
            if taken.kind.is_savepoint and taken.status is CheckpointStatus.COMPLETED
        )

    @property
    def end(self) -> JobEnd | None:
        """Snapshots that the job has left; `None` while it runs."""
        if not self.status.is_terminal:
            return None
        counted, savepoints = self.statistics, len(self.savepoints)
        has_snapshot = counted.last_checkpoint_id is not None
        return job_end(
            self.status,
            self.settings,
            None if self.storage is None else f"{self.storage.rstrip('/')}/{self.job_id}",
            has_snapshot=has_snapshot,
            has_checkpoint=has_snapshot and (not savepoints or counted.completed_checkpoints > savepoints),
            savepoint=self.savepoint,
            drained=self.drained,
            earlier_savepoints=sum(taken.kind is SnapshotKind.SAVEPOINT for taken in self.savepoints),
            restored_from=self.restored_from if self._could_open_its_snapshot else None,
        )

    @property
    def _could_open_its_snapshot(self) -> bool:
        return not self.failures or self.failures[-1].root.kind is not FailureKind.SNAPSHOT

    def vertex_of(self, operator: str) -> str:
        """Return the vertex of an operator; `job-master` stands for the JobMaster, `ray` for Ray itself.

        Raises:
            ConfigurationError: The job has no such operator.
        """
        known = {operator.id: operator.vertex for operator in self.operators}
        vertices = {RAY: RAY, **known, JOB_MASTER: JOB_MASTER}
        if operator in vertices:
            return vertices[operator]
        ids = list(known)
        near = nearest_name(operator, [*ids, JOB_MASTER, RAY])
        all_ids = f"{', '.join(ids)}, and {JOB_MASTER} and {RAY}"
        msg = f"job {self.job_id} has no operator '{operator}'; it has: {all_ids}{near}"
        raise ConfigurationError(msg)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON.

        It includes derived values, such as `vertices` and `end`, for programs in other languages.
        """
        bottleneck, end, slow = self.bottleneck, self.end, self.slow_checkpoint
        return {
            "format": FORMAT,
            **to_plain(self),
            "history": [{"kind": type(entry).__name__.lower(), **to_plain(entry)} for entry in self.history],
            "subtasks": list(map(_subtask_to_dict, self.subtasks)),
            "vertices": to_plain(self.vertices),
            "edges": to_plain(self.edges),
            "bottleneck": None if bottleneck is None else {**to_plain(bottleneck), "text": str(bottleneck)},
            "restored_from": self.restored_from,
            "end": None if end is None else end.to_dict(),
            "slow_checkpoint": None if slow is None else {**to_plain(slow), "text": str(slow)},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobReport:
        """Make a report from the output of `to_dict`.

        Raises:
            TypeError: A value is missing or has another type; the message names it.
            KeyError: `subtasks` is missing, or a subtask has no `vertex`, `index` or `process`.
        """
        subtasks = list(map(_subtask_from_dict, data["subtasks"]))
        report: JobReport = from_plain(cls, {**data, "subtasks": subtasks})
        return report


def _subtask_to_dict(info: SubtaskInfo) -> dict[str, Any]:
    """Return the plain values of a subtask, with its id as `vertex` and `index`."""
    plain = to_plain(info)
    del plain["subtask"]
    if info.process is not None:
        del plain["process"]["subtask"]
    return {"vertex": info.subtask.vertex, "index": info.subtask.index, **plain}


def _subtask_from_dict(data: Mapping[str, Any]) -> dict[str, Any]:
    subtask = data["vertex"], data["index"]
    process = data["process"] and {**data["process"], "subtask": subtask}
    return {**data, "subtask": subtask, "process": process}


#: Maximum characters of the message of a secondary failure.
_LONGEST_SECONDARY: Final = 500


def failure_text(cause: FailureCause) -> str:
    """Operator, subtask, the user's line and the error; below them the user's traceback."""
    return f"{headline(cause)}\n{cause.traceback}".rstrip()


def headline(cause: FailureCause) -> str:
    """The failure without its traceback; names the subtask once."""
    return cause.message if cause.message.startswith("operator '") else str(cause)


def bounded(record: FailureRecord) -> FailureRecord:
    """The record with short messages and no tracebacks of its secondary failures."""
    secondary = (
        replace(cause, message=shortened(cause.message, _LONGEST_SECONDARY), traceback="")
        for cause in record.secondary
    )
    return replace(record, secondary=tuple(secondary))
