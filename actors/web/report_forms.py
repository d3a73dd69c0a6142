"""The forms of a job's report for `openapi`, made of its dataclasses, so that they can't say something else.

Most parts of a report are dataclasses as `asdict` writes them. Where `to_dict` writes something else, `_form`
takes the dataclass and says what differs. Handlers answer plain dicts, so the types here are dicts for mypy.
"""

from __future__ import annotations

from dataclasses import fields, make_dataclass
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, TypeAlias, get_type_hints

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from penstock.actors.shared.job_report import JobMasterProcess, JobReport, SubtaskInfo, Takeover
from penstock.actors.shared.job_summaries import Bottleneck, EdgeSummary, VertexSummary
from penstock.actors.web.lag_trend import LagTrend
from penstock.actors.web.samples import Sample
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, VertexInfo
from penstock.runtime.job.failure import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.rescale_history import RescaleRecord
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.state_processor.inspection import MasterSummary, OperatorSummary
from penstock.runtime.task.rates import SubtaskRates
from penstock.runtime.task.statistics import SubtaskStatistics


class _As:
    """Describes a dict as pydantic describes a class."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self._kind)


def _form(kind: type[Any], name: str = "", /, *, _without: tuple[str, ...] = (), **changed: Any) -> Any:
    """The form of a dataclass.

    Args:
        name: Its name in OpenAPI, if it has another one there.
        _without: Attributes that are not written.
        changed: Types of attributes that are written in another way, or are written besides.
    """
    hints = get_type_hints(kind)
    members = {each.name: hints[each.name] for each in fields(kind) if each.name not in _without}
    made = make_dataclass(name or kind.__name__, list({**members, **changed}.items()))
    made.__doc__ = kind.__doc__
    return made


def _many(form: Any) -> Any:
    return GenericAlias(tuple, (form, ...))


class Process(TypedDict):
    """Where a subtask runs: process id, and Ray's id of the node."""

    pid: int
    node_id: str


StateTransition = TypedDict(
    "StateTransition",
    {"kind": Literal["transition"], "from": JobState, "to": JobState, "at": float, "cause": str},
)
StateTransition.__doc__ = "A change of a job's state."
_TAKEOVER = _form(Takeover, kind=Literal["takeover"])
_CAUSE = _form(FailureCause, subtask=tuple[str, int] | None)
_FAILURE = _form(FailureRecord, root=_CAUSE, secondary=_many(_CAUSE))
_SUBTASK = _form(
    SubtaskInfo,
    _without=("subtask",),
    vertex=str,
    index=int,
    process=Process | None,
    statistics=SubtaskStatistics | None,
    silence=Silence | None,
    long_call=LongCall | None,
    rates=SubtaskRates | None,
)
_REPORT = _form(
    JobReport,
    format=int,
    failure=_FAILURE | None,
    history=_many(StateTransition | _TAKEOVER),
    failures=_many(_FAILURE),
    rescales=tuple[RescaleRecord, ...],
    subtasks=_many(_SUBTASK),
    master=JobMasterProcess | None,
    vertices=tuple[VertexSummary, ...],
    edges=tuple[EdgeSummary, ...],
    bottleneck=_form(Bottleneck, text=str) | None,
)
_NAMES_OF_FLINK: Final[dict[str, Any]] = {
    "id": int,
    "is_savepoint": bool,
    "trigger_timestamp": float,
    "end_to_end_duration": float | None,
    "state_size": int | None,
    "checkpointed_size": int,
    "persisted_data": int,
    "num_subtasks": int,
    "num_acknowledged_subtasks": int,
    "failure_message": str | None,
}
_CHECKPOINT = _form(CheckpointRecord, "Checkpoint", **_NAMES_OF_FLINK)


class AlignmentOfSubtask(TypedDict):
    """Seconds that barriers were aligned, and bytes of data between subtasks that the checkpoint holds."""

    duration: float
    persisted: int


#: Seconds that stopped the task, and seconds beside it.
CheckpointParts = TypedDict("CheckpointParts", {"sync": float, "async": float})
_SUBTASK_CHECKPOINT = _form(
    CheckpointMetrics,
    "CheckpointOfSubtask",
    vertex=str,
    subtask=int,
    index=int,
    state_size=int,
    checkpointed_size=int,
    checkpoint=CheckpointParts,
    alignment=AlignmentOfSubtask,
)

Report: TypeAlias = Annotated[dict[str, Any], _As(_REPORT)]
Failure: TypeAlias = Annotated[dict[str, Any], _As(_FAILURE)]
Checkpoint: TypeAlias = Annotated[dict[str, Any], _As(_CHECKPOINT)]
CheckpointOfSubtask: TypeAlias = Annotated[dict[str, Any], _As(_SUBTASK_CHECKPOINT)]
CheckpointDetailsForm: TypeAlias = Annotated[
    dict[str, Any],
    _As(
        _form(
            CheckpointRecord,
            "CheckpointDetails",
            **_NAMES_OF_FLINK,
            by_subtask=_many(_SUBTASK_CHECKPOINT),
        )
    ),
]
Graph: TypeAlias = Annotated[dict[str, Any], _As(GraphInfo)]
Vertex: TypeAlias = Annotated[dict[str, Any], _As(VertexInfo)]
Edge: TypeAlias = Annotated[dict[str, Any], _As(EdgeInfo)]
SampleForm: TypeAlias = Annotated[dict[str, Any], _As(Sample)]
Trend: TypeAlias = Annotated[
    dict[str, Any],
    _As(_form(LagTrend, direction=Literal["grows", "shrinks", "stays"], text=str)),
]
OperatorInSnapshot: TypeAlias = Annotated[dict[str, Any], _As(OperatorSummary)]
MasterInSnapshot: TypeAlias = Annotated[dict[str, Any], _As(MasterSummary)]
SubtaskInSnapshot: TypeAlias = Annotated[
    dict[str, Any], _As(_form(CheckpointMetrics, "SubtaskInSnapshot", vertex=str, subtask=int))
]
