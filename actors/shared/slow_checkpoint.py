"""The reason why a checkpoint takes long: one subtask, and the part of its checkpoint that took longest.

**The critical path.** A checkpoint ends with the last acknowledgement. The subtask that sent it had written
its state after it forwarded the barrier. It had forwarded the barrier after the barriers of all its inputs
arrived. So the path leads from this subtask to the sender of its last barrier, and on to a source. The times
on this path add up to the last acknowledgement, and the longest of them is the reason. The largest start
delay is not the reason, because every subtask downstream of a slow one has it, too. The rest of the duration
is not measured. It includes the write of the decision record. If the rest is longer than the longest part, no
reason is known.

The wait of a barrier in front of a subtask counts as that subtask's start delay. It counts as alignment if
the barrier of another input came earlier. Nothing is measured before the acknowledgement. So for a running
checkpoint the reason is a subtask that has not acknowledged although all of its senders have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.runtime.graph.graph_info import GraphInfo
from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointMetrics, CheckpointStatus
from penstock.runtime.snapshot.ids import SubtaskId

#: Seconds from which a checkpoint takes long, whatever its interval.
LONG: Final = 10.0
#: Seconds below which no checkpoint takes long.
SHORT: Final = 1.0
#: Share of the interval from which a checkpoint of at least `SHORT` seconds takes long.
SHARE: Final = 0.5


class CheckpointPart(Enum):
    """A part of a subtask's checkpoint; `MISSING` is a missing acknowledgement."""

    START_DELAY = "start_delay"
    ALIGNMENT = "alignment"
    SYNC = "sync"
    ASYNC = "async"
    MISSING = "missing"


_TEXTS: Final = {
    CheckpointPart.START_DELAY: "its barrier waited {time} in front of {subtask} (start delay)",
    CheckpointPart.ALIGNMENT: "{subtask} waited {time} for the barriers of its other inputs (alignment)",
    CheckpointPart.SYNC: "{subtask} stopped for {time} to capture its state (synchronous part)",
    CheckpointPart.ASYNC: "{subtask} uploaded its state for {time} (asynchronous part)",
    CheckpointPart.MISSING: "{subtask} has not acknowledged it",
}


@dataclass(frozen=True, slots=True)
class SlowCheckpoint:
    """A checkpoint that takes long, and the reason.

    Attributes:
        duration: Seconds from trigger to end, or until now.
        vertex: Vertex of the subtask that delays the checkpoint.
        subtask: Index of this subtask.
        seconds: Seconds that the part took; equals `duration` for a missing acknowledgement.

    Example:
        >>> str(SlowCheckpoint(7, 12.3, "enrich", 1, CheckpointPart.ALIGNMENT, 11.9))
        'Checkpoint 7 took 12 s: `enrich[1]` waited 12 s for the barriers of its other inputs (alignment).'
    """

    checkpoint_id: int
    duration: float
    vertex: str
    subtask: int
    part: CheckpointPart
    seconds: float

    def __str__(self) -> str:
        took = "has run for" if self.part is CheckpointPart.MISSING else "took"
        subtask = f"`{self.vertex}[{self.subtask}]`"
        reason = _TEXTS[self.part].format(subtask=subtask, time=_short(self.seconds))
        return f"Checkpoint {self.checkpoint_id} {took} {_short(self.duration)}: {reason}."


def takes_long(seconds: float, every: float | None) -> bool:
    """Whether a checkpoint of this duration takes long; `every` is the interval of checkpoints in seconds.

    Example:
        >>> takes_long(2.0, every=3.0), takes_long(2.0, every=60.0), takes_long(0.9, every=0.1)
        (True, False, False)
    """
    return seconds >= LONG or (every is not None and seconds >= SHORT and seconds > every * SHARE)


def explain_completed(graph: GraphInfo, details: CheckpointDetails) -> SlowCheckpoint | None:
    """The longest time on the critical path of a completed checkpoint.

    Returns `None` if nothing was measured, or if the part that was not measured is longer than this time.
    """
    steps = [*_critical_path(graph, details.subtasks)]
    if not steps or details.record.status is not CheckpointStatus.COMPLETED:
        return None
    subtask, part, seconds = max(steps, key=lambda step: step[2])
    record = details.record
    measured = sum(step[2] for step in steps)
    duration = measured if record.duration is None else record.duration
    if duration - measured > seconds:
        return None
    return SlowCheckpoint(record.checkpoint_id, duration, subtask.vertex, subtask.index, part, seconds)


def explain_running(
    graph: GraphInfo, checkpoint_id: int, seconds: float, missing: Collection[SubtaskId]
) -> SlowCheckpoint | None:
    """A subtask whose acknowledgement is missing, and which waits for no other subtask in `missing`."""
    late = {subtask.vertex for subtask in missing}
    behind = {edge.target for edge in graph.edges if edge.source in late}
    places = {vertex.id: place for place, vertex in enumerate(graph.vertices)}
    first = min(
        (subtask for subtask in missing if subtask.vertex in places),
        key=lambda subtask: (subtask.vertex in behind, places[subtask.vertex], subtask.index),
        default=None,
    )
    if first is None:
        return None
    return SlowCheckpoint(checkpoint_id, seconds, first.vertex, first.index, CheckpointPart.MISSING, seconds)


def _critical_path(
    graph: GraphInfo, measured: Mapping[SubtaskId, CheckpointMetrics]
) -> Iterator[tuple[SubtaskId, CheckpointPart, float]]:
    """Times that add up to the last acknowledgement, last first."""
    if not measured:
        return
    here = max(measured, key=lambda subtask: _ended(measured[subtask]))
    own = measured[here]
    yield here, CheckpointPart.ASYNC, own.async_duration
    left = own.sync_duration
    while True:
        began = _began(own)
        yield here, CheckpointPart.SYNC, left
        senders = [s for s in _senders(graph, here, measured) if _began(measured[s]) <= began]
        # A barrier leaves before the end of the sender's synchronous part, or at its end.
        left_at = {s: min(began, _began(measured[s]) + measured[s].sync_duration) for s in senders}
        last = max(senders, key=left_at.__getitem__, default=None)
        waited = began if last is None else began - _began(measured[last])
        left = 0.0 if last is None else min(waited, measured[last].sync_duration)
        is_alignment = own.alignment_duration > own.start_delay
        yield here, CheckpointPart.ALIGNMENT if is_alignment else CheckpointPart.START_DELAY, waited - left
        if last is None:
            return
        here, own = last, measured[last]


def _senders(graph: GraphInfo, receiver: SubtaskId, known: Collection[SubtaskId]) -> Iterator[SubtaskId]:
    for edge in graph.edges:
        if edge.target == receiver.vertex:
            is_forward = edge.partitioning == Partitioning.FORWARD.value
            for subtask in known:
                if subtask.vertex == edge.source and not (is_forward and subtask.index != receiver.index):
                    yield subtask


def _began(metrics: CheckpointMetrics) -> float:
    """Seconds from the trigger until a subtask began to capture its state."""
    return metrics.start_delay + metrics.alignment_duration


def _ended(metrics: CheckpointMetrics) -> float:
    return _began(metrics) + metrics.sync_duration + metrics.async_duration


def _short(seconds: float) -> str:
    """A duration below a minute in seconds; a longer one in minutes and seconds.

    Example:
        >>> _short(1.26), _short(12.3), _short(75.0)
        ('1.3 s', '12 s', '1 min 15 s')
    """
    if seconds < 60:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
