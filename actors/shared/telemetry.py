"""Traces of a job as plain values: durations of checkpoints, starts, restarts, rescales, and their parts.

A checkpoint is one trace, with a span for each subtask. Parts of such a span are the start delay, the
alignment, the synchronous and the asynchronous part. A subtask measures durations, not times, so the parts
are laid end to end, starting at the trigger. The trace of a failed checkpoint has the failure reason.

An episode is a period in which a job's state is neither `running` nor `stopping`. It begins with the
submission, a failure, a rescale or a cancellation, and ends when the job runs again, or has ended. It is one
trace with a span for each state of the job.

`metric_tags`: Ray's C++ side, its agent and Prometheus take any UTF-8. Only the Cython layer in between
refuses it, by calling `value.encode("ascii")`. A `str` whose `encode` returns UTF-8 is accepted, and
Prometheus shows the user's spelling. A replacement such as `?` would merge the series of different names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from penstock.runtime.job.job_state import JobState, Transition
from penstock.runtime.redaction import redacted
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointMetrics, CheckpointStatus
from penstock.runtime.snapshot.ids import SubtaskId

#: States in which a job does its work.
_WORKING: Final = (JobState.RUNNING, JobState.STOPPING)

_ENDED: Final = (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """A span of time with its name and parts.

    Attributes:
        begun: Wall-clock seconds.
        ended: Wall-clock seconds.
        failure: Cause of the failure, without secrets; empty for a success.
    """

    name: str
    begun: float
    ended: float
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    failure: str = ""
    parts: tuple[TraceSpan, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "failure", redacted(self.failure))


def checkpoint_span(checkpoint: CheckpointDetails) -> TraceSpan | None:
    """The trace of a checkpoint; `None` while it runs."""
    record = checkpoint.record
    if record.status not in _ENDED or record.duration is None:
        return None
    attributes: dict[str, str | int | float] = {
        "penstock.checkpoint.id": record.checkpoint_id,
        "penstock.checkpoint.kind": record.kind.value,
        "penstock.attempt": record.attempt,
        "penstock.checkpoint.written_bytes": record.written_bytes,
        "penstock.checkpoint.in_flight_bytes": record.in_flight_bytes,
    }
    if record.size is not None:
        attributes["penstock.checkpoint.size"] = record.size
    failure = "" if record.failure is None else f"{record.failure.value} {record.detail}".strip()
    parts = tuple(
        _subtask_span(subtask, measured, record.triggered_at)
        for subtask, measured in sorted(checkpoint.subtasks.items())
    )
    ended = record.triggered_at + record.duration
    return TraceSpan("checkpoint", record.triggered_at, ended, attributes, failure, parts)


def _subtask_span(subtask: SubtaskId, measured: CheckpointMetrics, triggered_at: float) -> TraceSpan:
    lengths = {
        "start delay": measured.start_delay,
        "alignment": measured.alignment_duration,
        "synchronous part": measured.sync_duration,
        "asynchronous part": measured.async_duration,
    }
    parts, at = [], triggered_at
    for name, length in lengths.items():
        parts.append(TraceSpan(name, at, at + length))
        at += length
    attributes: dict[str, str | int | float] = {
        "penstock.operator": subtask.vertex,
        "penstock.subtask": str(subtask),
        "penstock.checkpoint.written_bytes": measured.written_bytes,
        "penstock.checkpoint.full_bytes": measured.full_bytes,
        "penstock.checkpoint.in_flight_bytes": measured.in_flight_bytes,
    }
    return TraceSpan(str(subtask), triggered_at, at, attributes, parts=tuple(parts))


def episodes(transitions: Iterable[Transition]) -> Iterator[TraceSpan]:
    """Return the ended episodes, oldest first."""
    begun: list[Transition] = []
    for step in transitions:
        if step.source is JobState.CREATED or (step.source in _WORKING and step.target not in _WORKING):
            begun = []
        begun.append(step)
        if step.target in _WORKING or step.target.is_terminal:
            if step.source not in _WORKING:
                yield _episode(begun)
            begun = []


def _episode(steps: list[Transition]) -> TraceSpan:
    states = [step.target for step in steps]
    name = "end"
    if states[-1] in _WORKING:
        failed, rescaled = JobState.FAILING in states, JobState.RESCALING in states
        name = "restart" if failed else "rescale" if rescaled else "start"
    parts = tuple(TraceSpan(step.target.value, step.at, then.at) for step, then in pairwise(steps))
    failure = next((step.cause for step in steps if step.target is JobState.FAILING), "")
    attributes = {} if name != "end" else {"penstock.state": states[-1].value}
    return TraceSpan(name, steps[0].at, steps[-1].at, attributes, failure, parts)


class _Tag(str):
    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return UTF-8, whatever encoding Ray requests."""
        return super().encode("utf-8", "backslashreplace")


def metric_tags(**tags: str) -> dict[str, str]:
    """Return tags for a Ray metric; values may contain any Unicode text."""
    return {name: _Tag(redacted(value)) for name, value in tags.items()}
