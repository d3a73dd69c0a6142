"""The forms of requests and answers: `openapi` describes them, and requests are checked against them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, StringConstraints, with_config
from typing_extensions import TypedDict

from penstock.actors.web.openapi import (
    Checkpoint,
    Failure,
    LogLineForm,
    Report,
    SampleForm,
    Trend,
    VertexSampleForm,
)


class InfoAnswer(TypedDict):
    """The server itself."""

    version: str
    read_only: bool
    hides_records: bool
    address: str
    storage: str | None


class JobOverviewRow(TypedDict):
    """A job in the list. Times are wall-clock seconds, `duration` is in seconds, `records_in` is per second.

    If the report can't be read, `problem` says why and `status` is `unreadable`. Else `problem` is `null`.
    """

    job_id: str
    name: str
    status: str
    problem: str | None
    submitted_at: float
    ended_at: float | None
    duration: float
    restarts: int
    records_in: float | None
    last_checkpoint: float | None
    live: bool


class JobsOverviewAnswer(TypedDict):
    """All jobs, the newest first."""

    jobs: list[JobOverviewRow]


class JobAnswer(TypedDict):
    """A job: `report` as `penstock status --json` prints it, `age` in seconds since the JobMaster answered.

    `lag_trend` says whether the job's event time catches up. It is `null` without event time, until four
    samples span ten seconds, and after the job's end.
    """

    report: Report
    age: float
    answering: bool
    live: bool
    lag_trend: Trend | None


class ExceptionsAnswer(TypedDict("ExceptionsAnswer", {"root-exception": Failure | None})):
    """The cause of the current failure, and the last failures, newest first."""

    history: list[Failure]


class CheckpointCounts(TypedDict):
    """Numbers of checkpoints, over the whole life of the job except for `in_progress`."""

    total: int
    completed: int
    failed: int
    in_progress: int


class Percentiles(TypedDict):
    """Percentiles of one figure of completed checkpoints; `null` if no value is known."""

    min: float | None
    max: float | None
    avg: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class CheckpointSummary(TypedDict):
    """Seconds from trigger to end, and bytes; `written_bytes` and `checkpointed_size` are equal."""

    end_to_end_duration: Percentiles
    state_size: Percentiles
    persisted_data: Percentiles
    written_bytes: Percentiles
    checkpointed_size: Percentiles


class LatestCheckpoints(TypedDict):
    """The newest checkpoint of each kind."""

    completed: Checkpoint | None
    failed: Checkpoint | None
    savepoint: Checkpoint | None


class CheckpointsAnswer(TypedDict):
    """Counters, percentiles over `summarized` checkpoints, the newest ones, and the history, newest first."""

    counts: CheckpointCounts
    summarized: int
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]


class ConfigurationAnswer(TypedDict):
    """The settings of a job as text."""

    config: dict[str, str]


class SamplesAnswer(TypedDict):
    """Samples, oldest first: one per ten seconds for an hour, then the last 300, at most one per second."""

    samples: list[SampleForm]


class VertexSamplesAnswer(TypedDict):
    """Samples of a vertex, at the times of the job's samples."""

    samples: list[VertexSampleForm]


class LogAnswer(TypedDict):
    """Lines of the log; `next` is the `offset` that requests the lines after them."""

    lines: list[LogLineForm]
    next: int
    silent_nodes: list[str]


class KeyEntry(TypedDict):
    """One value of a key as text; `part` is the key in a map, the position in a list, or the window."""

    part: str | None
    value: str


class KeyValueAnswer(TypedDict):
    """Content of the newest snapshot for a key, and the id of that snapshot."""

    key: str
    key_group: int
    kind: str
    checkpoint_id: int
    found: bool
    entries: list[KeyEntry]
    more: int


_Level = Literal["ok", "low", "high"]

SubtaskShares = TypedDict(
    "SubtaskShares",
    {
        "subtask": int,
        "attempt-number": int,
        "backpressure-level": _Level,
        "ratio": float,
        "busyRatio": float,
        "idleRatio": float,
    },
)
SubtaskShares.__doc__ = "Shares of a subtask's time, from 0 to 1; `ratio` is the back-pressured share."


class BackpressureAnswer(TypedDict("BackpressureAnswer", {"backpressure-level": _Level})):
    """Time shares of the subtasks of a vertex; the status is `deprecated` while no share is known."""

    status: Literal["ok", "deprecated"]
    subtasks: list[SubtaskShares]


class SubtaskWatermark(TypedDict):
    """Event time of a subtask; `idle` if watermarks do not wait for the subtask."""

    subtask: int
    watermark: int | None
    idle: bool


class WatermarksAnswer(TypedDict):
    """Event time of the subtasks of a vertex, in microseconds since the epoch."""

    watermarks: list[SubtaskWatermark]


class MetricValue(TypedDict):
    """One metric: `0.records_in` belongs to the first subtask. Without `get` it has no `value`."""

    id: str
    value: NotRequired[float]


class MetricsAnswer(TypedDict):
    """Metrics of the subtasks of a vertex: names, and with `get` also values."""

    metrics: list[MetricValue]


class Stacks(TypedDict):
    """A function, the number of stacks that contain it, and the functions that it calls."""

    name: str
    value: int
    children: list[Stacks]


class EdgeRecordForm(TypedDict):
    """A record that a subtask has sent, as Python shows it; `timestamp` is in microseconds."""

    subtask: int
    timestamp: int | None
    text: str


class EdgeRecordsAnswer(TypedDict):
    """Records that flow on an edge now; empty if none passes within `seconds`."""

    source: str
    target: str
    seconds: float
    records: list[EdgeRecordForm]


class FlameGraphAnswer(TypedDict):
    """Stacks as a tree; `rate` is the number of samples per second."""

    root: Stacks
    seconds: float
    rate: int
    type: Literal["on_cpu", "off_cpu", "mixed"]


MovedState = TypedDict(
    "MovedState",
    {
        "vertex": str,
        "from": int,
        "to": int,
        "key_groups": int,
        "key_groups_moved": int,
        "bytes_moved": int | None,
        "has_keyed_state": bool,
        "text": str,
    },
)
MovedState.__doc__ = "A vertex at another parallelism; `text` describes the state that moves."


class RescalePreviewAnswer(TypedDict):
    """Keyed state that a rescale would move, and the vertices that restart."""

    vertices: list[MovedState]
    restarts: list[str]


class TriggerStatus(TypedDict):
    """Progress of a request."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


RequestFailure = TypedDict(
    "RequestFailure", {"class": str, "message": str, "outcome": Literal["failed", "unknown"]}
)
RequestFailure.__doc__ = "The failure of a request, or the reason why its outcome is unknown."

Operation = TypedDict(
    "Operation", {"failure-cause": NotRequired[RequestFailure], "result": NotRequired[dict[str, Any]]}
)
Operation.__doc__ = (
    "The outcome of a request: `failure-cause` or `result`. The `result` of a savepoint has its `location`."
)


class TriggerStatusAnswer(TypedDict):
    """Progress of a request; with `COMPLETED`, `operation` has the outcome."""

    status: TriggerStatus
    operation: NotRequired[Operation]


AcceptedAnswer = TypedDict("AcceptedAnswer", {"request-id": str})
AcceptedAnswer.__doc__ = "The request continues; ask `/v1/jobs/{job}/triggers/{request-id}` for its progress."


#: Configuration for request bodies: a misspelt field must not be ignored silently.
_CLOSED: Final = with_config(ConfigDict(extra="forbid"))


@_CLOSED
class SessionBody(TypedDict):
    """A token that begins a session."""

    token: str


#: An id that the caller chooses. Repeated requests with the same id begin only once.
TriggerKey: TypeAlias = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z_-]{1,64}$")]


@_CLOSED
class CheckpointBody(TypedDict):
    """A checkpoint; `full` writes all state anew."""

    full: NotRequired[bool]
    triggerId: NotRequired[TriggerKey | None]


_Place = TypedDict("_Place", {"target-directory": NotRequired[str | None]})
_Cancels = TypedDict("_Cancels", {"cancel-job": NotRequired[bool]})


@_CLOSED
class SavepointBody(_Place, _Cancels):
    """A savepoint. `cancel-job` stops the job with it."""

    triggerId: NotRequired[TriggerKey | None]


@_CLOSED
class StopBody(_Place):
    """A savepoint and the end of the job; `drain` advances event time to its end first."""

    drain: NotRequired[bool]
    triggerId: NotRequired[TriggerKey | None]


@_CLOSED
class ResourceRequirementsBody(TypedDict):
    """New parallelism by operator id."""

    parallelism: dict[str, int]
