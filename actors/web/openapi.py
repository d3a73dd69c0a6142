"""OpenAPI 3.1 description of the server, generated from the routes and their types.

The schemas of a job's report are generated from its dataclasses, so the two can't differ. `_form` describes
the parts of a report whose JSON has other names or types than the dataclass. Handlers return plain dicts, so
the types here are dicts for mypy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, make_dataclass
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, TypeAlias, get_type_hints

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from penstock.actors.client.logs import LogLine
from penstock.actors.shared.job_end import JobEnd
from penstock.actors.shared.job_report import JobReport, SubtaskInfo, Takeover
from penstock.actors.shared.job_summaries import Bottleneck, EdgeSummary, VertexSummary
from penstock.actors.shared.slow_checkpoint import SlowCheckpoint
from penstock.actors.web.samples import LagTrend, Sample, VertexSample
from penstock.actors.web.server import Route
from penstock.runtime.graph.graph_info import GraphInfo
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics, CheckpointRecord
from penstock.runtime.state_processor.inspection import SnapshotSummary

_NAME = re.compile(r"{([a-z]+)}")
#: An attribute in a docstring, with its continuation lines.
_ATTRIBUTE = re.compile(r"^    (\w+): (.*\n(?:        .*\n)*)", re.MULTILINE)

_REFERENCE = "#/components/schemas/{model}"

_ERROR = {
    "type": "object",
    "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
    "required": ["errors"],
}


def describe_routes(routes: Iterable[Route]) -> dict[str, Any]:
    """The description of these routes, as plain values for JSON."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Errors": _ERROR}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "v1",
            "description": "Jobs of a cluster. Requests that change a job need the header `X-Penstock: 1`.",
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "penstock-PORT"},
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        answer["content"] = {"application/json": {"schema": _schema(route.answer, schemas)}}
    problem = {
        "description": "The request failed",
        "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Errors")}}},
    }
    text = {"type": "string"}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in _NAME.findall(route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": means, "schema": text}
        for name, means in route.query.items()
    ]
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}-{route.handler.__name__.replace('_', '-')}"
        + ("-of-savepoint" if "/savepoints/" in route.path else ""),
        "responses": {str(route.status): answer, "default": problem},
    }
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(route.body, schemas)}},
        }
    if route.is_open:
        operation["security"] = []
    return operation


class _Written(GenerateJsonSchema):
    """Describes dataclasses with all attributes required, even attributes with a default."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return field["type"] == "dataclass-field" or super().field_is_required(field, total)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def _schema(form: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    made = TypeAdapter(form).json_schema(
        ref_template=_REFERENCE, schema_generator=_Written, mode="serialization"
    )
    parts = made.pop("$defs", {})
    if "$ref" not in made:
        name = made.get("title") or form.__name__
        parts[name] = made
        made = {"$ref": _REFERENCE.format(model=name)}
    for name, part in parts.items():
        described = _described(part)
        if schemas.setdefault(name, described) != described:
            msg = f"two different schemas have the name {name}"
            raise ValueError(msg)
    return made


def _described(part: dict[str, Any]) -> dict[str, Any]:
    """A part with its docstring's text for each attribute, and without titles, which repeat names."""
    head, _, rest = part.get("description", "").partition("\n\nAttributes:\n")
    text = head.partition("\n\nExample:")[0].partition("\n\nArgs:")[0]
    said = dict(_ATTRIBUTE.findall(rest.partition("\n\n")[0] + "\n"))
    properties = {
        name: _untitled(known) | ({"description": _line(said[name])} if name in said else {})
        for name, known in part.get("properties", {}).items()
    }
    described = _untitled(part) | ({"description": _line(text)} if text else {})
    return described | ({"properties": properties} if properties else {})


def _untitled(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != "title"}


def _line(text: str) -> str:
    return " ".join(text.split())


class _As:
    """Describes a dict as pydantic describes a class."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self._kind)


def _form(kind: type[Any], name: str = "", /, *, _without: tuple[str, ...] = (), **changed: Any) -> Any:
    """A copy of a dataclass from which its schema is generated, with the name `name` in OpenAPI.

    Args:
        _without: Attributes to omit.
        changed: Types of additional attributes, and of attributes whose type differs in JSON.
    """
    hints = get_type_hints(kind)
    members = {member.name: hints[member.name] for member in fields(kind) if member.name not in _without}
    made = make_dataclass(name or kind.__name__, list({**members, **changed}.items()))
    made.__doc__ = kind.__doc__
    return made


def _many(form: Any) -> Any:
    return GenericAlias(tuple, (form, ...))


class Process(TypedDict):
    """Process of a subtask: process id, and Ray's id of the node."""

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
)

_REPORT = _form(
    JobReport,
    format=int,
    failure=_FAILURE | None,
    history=_many(StateTransition | _TAKEOVER),
    failures=_many(_FAILURE),
    subtasks=_many(_SUBTASK),
    vertices=tuple[VertexSummary, ...],
    edges=tuple[EdgeSummary, ...],
    bottleneck=_form(Bottleneck, text=str) | None,
    restored_from=str | None,
    end=_form(JobEnd, command=str | None) | None,
    slow_checkpoint=_form(SlowCheckpoint, text=str) | None,
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
    """Seconds of barrier alignment, and bytes of in-flight data in the checkpoint."""

    duration: float
    persisted: int


#: Seconds that blocked the task, and seconds in the background.
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

CheckpointDetailsAnswer: TypeAlias = Annotated[
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

PlanAnswer: TypeAlias = Annotated[dict[str, Any], _As(GraphInfo)]

SampleForm: TypeAlias = Annotated[dict[str, Any], _As(Sample)]

VertexSampleForm: TypeAlias = Annotated[dict[str, Any], _As(VertexSample)]

LogLineForm: TypeAlias = Annotated[dict[str, Any], _As(LogLine)]

Trend: TypeAlias = Annotated[
    dict[str, Any],
    _As(_form(LagTrend, direction=Literal["grows", "shrinks", "stays"], text=str)),
]

SavedStateAnswer: TypeAlias = Annotated[
    dict[str, Any],
    _As(
        _form(
            SnapshotSummary,
            by_subtask=_many(_form(CheckpointMetrics, "SubtaskInSnapshot", vertex=str, subtask=int)),
        )
    ),
]
