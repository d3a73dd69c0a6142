"""REST answers about a job, made from its report, with the names of Flink's REST API where they fit.

Fields of a checkpoint have Flink's names in addition to Penstock's own. Unlike Flink's, durations are in
seconds, and states are in lower case. `processed_data` is missing: subtasks do not count the bytes that pass
during alignment.

`preview_of` estimates what a rescale moves. Keyed state moves with its key group. A key group moves when
another subtask owns it at the new parallelism. Bytes are assumed to be spread evenly over key groups. Nothing
moves in a vertex without keyed input, or without bytes of state. The whole job restarts: a rescale takes a
checkpoint and redeploys every vertex.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from typing import Any, Final

from penstock.actors.client.jobs import KnownJob
from penstock.actors.shared.job_report import JobReport, SubtaskInfo
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.graph_info import VertexInfo
from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.operators.metrics import HistogramStatistics
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.plain_values import to_plain
from penstock.runtime.state.key_groups import check_parallelism, subtask_of_key_group


def record_of(record: CheckpointRecord) -> dict[str, Any]:
    failure = None
    if record.status is CheckpointStatus.FAILED:
        reason = "" if record.failure is None else record.failure.value.replace("_", " ")
        failure = ": ".join(filter(None, (reason, record.detail)))
    return {
        **to_plain(record),
        "id": record.checkpoint_id,
        "is_savepoint": record.kind.is_savepoint,
        "trigger_timestamp": record.triggered_at,
        "end_to_end_duration": record.duration,
        "state_size": record.size,
        "checkpointed_size": record.written_bytes,
        "persisted_data": record.in_flight_bytes,
        "num_subtasks": record.subtasks,
        "num_acknowledged_subtasks": record.acknowledged,
        "failure_message": failure,
    }


def details_of(details: CheckpointDetails) -> dict[str, Any]:
    rows = [{**row, **_subtask(row)} for row in details.to_dict()["by_subtask"]]
    return {**record_of(details.record), "by_subtask": rows}


def _subtask(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": row["subtask"],
        "state_size": row["full_bytes"],
        "checkpointed_size": row["written_bytes"],
        "checkpoint": {"sync": row["sync_duration"], "async": row["async_duration"]},
        "alignment": {"duration": row["alignment_duration"], "persisted": row["in_flight_bytes"]},
    }


#: Shares of back-pressured time above which the level is `low`, and `high`.
_LOW: Final = 0.1

_HIGH: Final = 0.5

_LEVELS: Final = ("ok", "low", "high")

_RUNNING: Final = (CheckpointStatus.IN_PROGRESS, CheckpointStatus.FINALIZING)
#: Percentiles of a summary, as shares.
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def overview_of(known: KnownJob) -> dict[str, Any]:
    report = known.report
    rates = [
        subtask.rates.operators[operator.id].records_out
        for subtask in report.subtasks
        if subtask.rates is not None
        for operator in report.operators
        if operator.is_source and operator.id in subtask.rates.operators
    ]
    return {
        "job_id": report.job_id,
        "name": report.name,
        "status": known.state,
        "problem": known.problem or None,
        "submitted_at": report.submitted_at,
        "ended_at": report.submitted_at + report.duration if report.status.is_terminal else None,
        "duration": report.duration,
        "restarts": report.statistics.restarts,
        "records_in": sum(rates) if rates else None,
        "last_checkpoint": _last_completed_at(report),
        "live": known.is_running,
    }


def _last_completed_at(report: JobReport) -> float | None:
    """The newest checkpoint's completion time, even for an ended job without counters."""
    counted = report.checkpoints
    if counted is not None and counted.latest_completed_at is not None:
        return counted.latest_completed_at
    ended = (
        record.triggered_at + (record.duration or 0.0)
        for record in report.checkpoint_history
        if record.status is CheckpointStatus.COMPLETED
    )
    return max(ended, default=None)


def checkpoints_of(report: JobReport, records: Sequence[CheckpointRecord]) -> dict[str, Any]:
    """Counters, a summary of completed checkpoints, the latest of each kind, and the history, newest first.

    Args:
        records: All remembered checkpoints, oldest first.
    """
    history = records[::-1]
    completed = [record for record in history if record.status is CheckpointStatus.COMPLETED]
    written = summary_of(record.written_bytes for record in completed)
    counted = report.checkpoints
    return {
        "counts": {
            "total": 0 if counted is None else counted.triggered,
            "completed": 0 if counted is None else counted.completed,
            "failed": 0 if counted is None else counted.failed,
            "in_progress": sum(record.status in _RUNNING for record in history),
        },
        "summarized": len(completed),
        "summary": {
            "end_to_end_duration": summary_of(record.duration for record in completed),
            "state_size": summary_of(record.size for record in completed),
            "persisted_data": summary_of(record.in_flight_bytes for record in completed),
            "written_bytes": written,
            "checkpointed_size": written,
        },
        "latest": {
            "completed": _first(completed),
            "failed": _first(record for record in history if record.status is CheckpointStatus.FAILED),
            "savepoint": _first(record for record in completed if record.kind.is_savepoint),
        },
        "history": list(map(record_of, history)),
    }


def summary_of(values: Iterable[float | None]) -> dict[str, float | None]:
    """Minimum, maximum, average and percentiles (nearest rank); each is `None` if there are no values.

    Example:
        >>> summary_of([3, 1, None, 2])["p50"], summary_of([])["max"]
        (2, None)
    """
    known = sorted(value for value in values if value is not None)
    if not known:
        return dict.fromkeys(("min", "max", "avg", *_PERCENTILES))
    ranks = {name: known[ceil(share * len(known)) - 1] for name, share in _PERCENTILES.items()}
    return {"min": known[0], "max": known[-1], "avg": _average(known), **ranks}


def _average(values: Sequence[float]) -> float | None:
    try:
        return sum(values) / len(values)
    except OverflowError:  # integers beyond the range of a float, which Penstock never reports
        return None


def exceptions_of(report: JobReport) -> dict[str, Any]:
    """The cause of a current failure, and the last failures, newest first."""
    return {
        "root-exception": to_plain(report.failure),
        "history": to_plain(report.failures[::-1]),
    }


def backpressure_of(report: JobReport, vertex: VertexInfo) -> dict[str, Any]:
    """Shares of each subtask's time; the status is `deprecated` while no share is known, as in Flink."""
    rated = [(info, info.rates) for info in _subtasks_of(report, vertex) if info.rates is not None]
    worst = max((rates.backpressured for _, rates in rated), default=0.0)
    return {
        "status": "ok" if rated else "deprecated",
        "backpressure-level": _level(worst),
        "subtasks": [
            {
                "subtask": info.subtask.index,
                "attempt-number": info.attempt,
                "backpressure-level": _level(rates.backpressured),
                "ratio": rates.backpressured,
                "busyRatio": rates.busy,
                "idleRatio": rates.idle,
            }
            for info, rates in rated
        ],
    }


def watermarks_of(report: JobReport, vertex: VertexInfo) -> dict[str, Any]:
    """Watermark of each subtask, in microseconds since the epoch."""
    return {
        "watermarks": [
            {
                "subtask": info.subtask.index,
                "watermark": None if info.statistics is None else info.statistics.current_watermark,
                "idle": info.statistics is not None and info.statistics.is_idle,
            }
            for info in _subtasks_of(report, vertex)
        ]
    }


def metrics_of(report: JobReport, vertex: VertexInfo, wanted: Sequence[str]) -> dict[str, Any]:
    """The wanted metrics by name, such as `0.records_in`; without `wanted` all names, as in Flink."""
    known = {
        f"{info.subtask.index}.{name}": value
        for info in _subtasks_of(report, vertex)
        for name, value in _numbers(info)
        if isfinite(value)
    }
    names = wanted or sorted(known)
    return {
        "metrics": [
            {"id": name, "value": known[name]} if wanted else {"id": name} for name in names if name in known
        ]
    }


def _subtasks_of(report: JobReport, vertex: VertexInfo) -> list[SubtaskInfo]:
    return [info for info in report.subtasks if info.subtask.vertex == vertex.id]


def _numbers(subtask: SubtaskInfo) -> Iterator[tuple[str, float]]:
    """All numbers of a subtask by name: its own, the numbers of each operator, then rates."""
    if subtask.statistics is not None:
        yield from _plain("", to_plain(subtask.statistics))
        for operator, counted in subtask.statistics.operators.items():
            yield from _plain(f"{operator}.", {**to_plain(counted), **counted.extra})
            for name, gauge in counted.gauges.items():
                yield f"{operator}.{name}", gauge.total  # of one subtask: the value that was set
            for name, histogram in counted.histograms.items():
                yield from _distribution(f"{operator}.{name}", histogram)
    if subtask.rates is not None:
        yield from _plain("rate.", to_plain(subtask.rates))
        for operator, rates in subtask.rates.operators.items():
            yield from _plain(f"{operator}.rate.", to_plain(rates))


def _plain(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def _distribution(name: str, histogram: HistogramStatistics) -> Iterator[tuple[str, float]]:
    count = histogram.count
    yield f"{name}_count", count
    yield f"{name}_sum", histogram.total
    if count:
        yield f"{name}_min", histogram.least
        yield f"{name}_max", histogram.greatest
        yield f"{name}_mean", histogram.total / count
        for rank, share in _PERCENTILES.items():
            yield f"{name}_{rank}", histogram.quantile(share)


def _level(share: float) -> str:
    return _LEVELS[(share > _LOW) + (share > _HIGH)]


def _first(records: Iterable[CheckpointRecord]) -> dict[str, Any] | None:
    first = next(iter(records), None)
    return None if first is None else record_of(first)


def preview_of(report: JobReport, parallelism: Mapping[str, int]) -> dict[str, Any]:
    """The changes, vertex by vertex; an unknown operator raises a `ConfigurationError`."""
    vertices = {vertex.id: vertex for vertex in report.graph.vertices}
    changed = []
    for operator, wanted in parallelism.items():
        vertex = vertices.get(report.vertex_of(operator))
        if vertex is None:
            msg = f"the job has no operator {operator!r} to rescale"
            raise ConfigurationError(msg)
        check_parallelism(wanted, vertex.max_parallelism)
        changed.append(_change(report, vertex, wanted))
    return {"vertices": changed, "restarts": [vertex.id for vertex in report.graph.vertices]}


def _change(report: JobReport, vertex: VertexInfo, wanted: int) -> dict[str, Any]:
    groups = vertex.max_parallelism
    size = {summary.id: summary.state_bytes for summary in report.vertices}.get(vertex.id)
    is_keyed = size != 0 and any(
        edge.target == vertex.id and edge.partitioning == Partitioning.KEY_GROUP.value
        for edge in report.graph.edges
    )
    moved = moved_key_groups(vertex.parallelism, wanted, groups) if is_keyed else 0
    moved_bytes = None if size is None or not is_keyed else round(size * moved / groups)
    return {
        "vertex": vertex.id,
        "from": vertex.parallelism,
        "to": wanted,
        "key_groups": groups,
        "key_groups_moved": moved,
        "bytes_moved": moved_bytes,
        "has_keyed_state": is_keyed,
        "text": _text(moved, groups, moved_bytes) if is_keyed else "no keyed state moves",
    }


def _text(moved: int, groups: int, moved_bytes: int | None) -> str:
    text = f"{moved} of {groups} key groups {'moves' if moved == 1 else 'move'}"
    return text if moved_bytes is None else f"{text}, about {moved_bytes:,} bytes"


def moved_key_groups(before: int, after: int, max_parallelism: int) -> int:
    """The number of key groups that move to another subtask.

    Example:
        >>> moved_key_groups(2, 4, 128), moved_key_groups(2, 2, 128)
        (96, 0)
    """
    return sum(
        subtask_of_key_group(group, before, max_parallelism)
        != subtask_of_key_group(group, after, max_parallelism)
        for group in range(max_parallelism)
    )


def dumps(value: Any) -> str:
    """A value as JSON; a user's gauge of NaN or infinity becomes `null`.

    Example:
        >>> dumps({"queue": [1.5, float("nan")]})
        '{"queue": [1.5, null]}'
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
