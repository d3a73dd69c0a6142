"""The forms of requests and answers: `openapi` describes them, and requests are checked against them."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


class InfoAnswer(TypedDict):
    """The server itself."""

    version: str
    read_only: bool
    address: str
    storage: str | None


class JobOverviewRow(TypedDict):
    """A job in the list. Times are wall-clock seconds, `records_in` is per second."""

    job_id: str
    name: str
    status: str
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
    """A job: `report` is that of `penstock status --json`, `age` the seconds since the JobMaster answered."""

    report: dict[str, Any]
    age: float
    answering: bool
    live: bool


class PlanAnswer(TypedDict):
    """The job graph."""

    name: str
    vertices: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class ExceptionsAnswer(TypedDict("ExceptionsAnswer", {"root-exception": dict[str, Any] | None})):
    """Why it is failing now, and the last failures, the newest first."""

    history: list[dict[str, Any]]


class CheckpointsAnswer(TypedDict):
    """Counters, percentiles, the newest ones, and the last ones with the newest first."""

    counts: dict[str, int]
    summary: dict[str, dict[str, float | None]]
    latest: dict[str, dict[str, Any] | None]
    history: list[dict[str, Any]]


class CheckpointDetailsAnswer(TypedDict):
    """One checkpoint and what each subtask measured; `penstock checkpoints --json` prints a list of these."""

    checkpoint_id: int
    status: str
    kind: str
    triggered_at: float
    duration: float | None
    size: int | None
    by_subtask: list[dict[str, Any]]


class ConfigurationAnswer(TypedDict):
    """The settings of a job as text."""

    config: dict[str, str]


class SamplesAnswer(TypedDict):
    """Curves, oldest first: by seconds for five minutes, by tens of seconds for an hour."""

    samples: list[dict[str, Any]]


class LogAnswer(TypedDict):
    """Lines, and the `offset` with which to ask for those behind them."""

    lines: list[dict[str, Any]]
    next: int
    silent_nodes: list[str]


class SavedStateAnswer(TypedDict):
    """The newest snapshot; `penstock inspect --json` prints the same."""

    location: str
    kind: str
    checkpoint_id: int
    operators: list[dict[str, Any]]


class KeyValueAnswer(TypedDict):
    """What the newest snapshot holds for a key, and which snapshot that is."""

    key: str
    key_group: int
    kind: str
    checkpoint_id: int
    found: bool
    entries: list[dict[str, str | None]]
    more: int


class BackpressureAnswer(TypedDict("BackpressureAnswer", {"backpressure-level": str})):
    """Shares of the time of the subtasks of a vertex."""

    status: str
    subtasks: list[dict[str, Any]]


class WatermarksAnswer(TypedDict):
    """Event time of the subtasks of a vertex, in microseconds since the epoch."""

    watermarks: list[dict[str, Any]]


class MetricsAnswer(TypedDict):
    """Metrics of the subtasks of a vertex: names, or with `get` values."""

    metrics: list[dict[str, Any]]


class FlameGraphAnswer(TypedDict):
    """Stacks as a tree of `{name, value, children}`."""

    root: dict[str, Any]
    seconds: float
    rate: int


class RescalePreviewAnswer(TypedDict):
    """What a rescale would move."""

    vertices: list[dict[str, Any]]
    restarts: list[str]


class TriggerStatusAnswer(TypedDict):
    """How far a request is: `status.id` is `IN_PROGRESS` or `COMPLETED`; then `operation` has the result."""

    status: dict[str, str]
    operation: NotRequired[dict[str, Any]]


AcceptedAnswer = TypedDict("AcceptedAnswer", {"request-id": str})
AcceptedAnswer.__doc__ = "The request goes on; ask `/v1/jobs/{job}/triggers/{request-id}` how far it is."


class SessionBody(TypedDict):
    """A token that begins a session."""

    token: str


class CheckpointBody(TypedDict):
    """A checkpoint; `full` writes all state anew."""

    full: NotRequired[bool]


SavepointBody = TypedDict(
    "SavepointBody", {"target-directory": NotRequired[str | None], "cancel-job": NotRequired[bool]}
)
SavepointBody.__doc__ = "A savepoint; with `cancel-job` the job is stopped with it."

StopBody = TypedDict("StopBody", {"target-directory": NotRequired[str | None], "drain": NotRequired[bool]})
StopBody.__doc__ = "A savepoint and the end of the job; `drain` lets event time go to its end first."


class ResourceRequirementsBody(TypedDict):
    """New parallelism by operator id."""

    parallelism: dict[str, int]
