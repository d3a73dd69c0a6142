"""What a completed checkpoint tells of how it was taken: counts of the job, and what each subtask measured.

It stands in the checkpoint's metadata, which is written anyway, so it costs no operation of the storage, and
is there as long as the checkpoint is, whoever is the JobMaster by then. (Flink keeps it in the memory of its
JobManager: there no statistics of checkpoints survive the loss of that process.)

A job of a thousand subtasks has a thousand rows, so they are packed: columns instead of rows, whole
microseconds instead of floats. That is 15 to 36 bytes a subtask. They stay packed until somebody asks,
because a restart reads the metadata and has no use for them. Nothing is ever decided by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, Final

import msgpack

from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.sealed_file import damaged
from penstock.runtime.snapshot.subtask_id import SubtaskId

_SECONDS: Final = ("start_delay", "alignment_duration", "sync_duration", "async_duration")
_BYTES: Final = ("written_bytes", "full_bytes", "in_flight_bytes")
_MICROSECONDS: Final = 1_000_000
_WHAT: Final = "what the subtasks measured of a checkpoint"


@dataclass(frozen=True, slots=True)
class CompletedCheckpointStatistics:
    """How a checkpoint was taken.

    Attributes:
        triggered: Checkpoints of the job that had been started when this one completed, this one included.
        completed: Those that had completed, this one included.
        failed: Those that had failed or been given up; those that ran beside this one are in neither.
        duration: Seconds from trigger to the last acknowledgement, of a clock that is never set.
        subtasks: Subtasks that took part.
        written_bytes: New bytes that they wrote.
        in_flight_bytes: Of these, data that was between subtasks.
        packed: What each of them measured; see `metrics`.
    """

    triggered: int
    completed: int
    failed: int
    duration: float
    subtasks: int
    written_bytes: int
    in_flight_bytes: int
    packed: bytes

    @classmethod
    def of(
        cls,
        triggered: int,
        completed: int,
        failed: int,
        duration: float,
        metrics: Mapping[SubtaskId, CheckpointMetrics],
    ) -> CompletedCheckpointStatistics:
        """Of a checkpoint that is complete.

        Args:
            triggered: See the class.
            completed: See the class.
            failed: See the class.
            duration: See the class.
            metrics: What each subtask measured.

        Example:
            >>> measured = {SubtaskId("count", 0): CheckpointMetrics(sync_duration=0.25, written_bytes=7)}
            >>> known = CompletedCheckpointStatistics.of(3, 2, 1, 0.5, measured)
            >>> known.written_bytes, known.metrics() == measured
            (7, True)
        """
        return cls(
            triggered,
            completed,
            failed,
            duration,
            len(metrics),
            sum(m.written_bytes for m in metrics.values()),
            sum(m.in_flight_bytes for m in metrics.values()),
            _pack(metrics),
        )

    def metrics(self) -> dict[SubtaskId, CheckpointMetrics]:
        """What each subtask measured, to the microsecond.

        Raises:
            CorruptSnapshotError: It can't be read; the checkpoint's state is not concerned.
        """
        try:
            return dict(_unpacked(self.packed))
        except (ValueError, TypeError) as error:
            raise damaged(_WHAT, "a part of its metadata", f"it can't be decoded ({error})") from error

    def encode(self) -> list[Any]:
        """As a part of the checkpoint's metadata."""
        return [
            self.triggered,
            self.completed,
            self.failed,
            self.duration,
            self.subtasks,
            self.written_bytes,
            self.in_flight_bytes,
            self.packed,
        ]

    @classmethod
    def decode(cls, item: list[Any] | None) -> CompletedCheckpointStatistics | None:
        """What `encode` gave; `None` of metadata that another version wrote, with fewer items, more or none.

        Statistics are for people: that they can't be read is no reason not to start from a snapshot.
        """
        return None if item is None or len(item) != len(fields(cls)) else cls(*item)


def subtask_rows(metrics: Mapping[SubtaskId, CheckpointMetrics]) -> list[dict[str, Any]]:
    """What each subtask measured as plain values that JSON carries, by subtask."""
    return [{"vertex": s.vertex, "subtask": s.index, **asdict(m)} for s, m in sorted(metrics.items())]


def _pack(metrics: Mapping[SubtaskId, CheckpointMetrics]) -> bytes:
    by_vertex: dict[str, dict[int, CheckpointMetrics]] = {}
    for subtask, measured in metrics.items():
        by_vertex.setdefault(subtask.vertex, {})[subtask.index] = measured
    packed: bytes = msgpack.packb(
        [[vertex, list(rows), *_columns(list(rows.values()))] for vertex, rows in by_vertex.items()],
        unicode_errors="surrogatepass",
    )
    return packed


def _columns(rows: list[CheckpointMetrics]) -> Iterator[list[int]]:
    for name in _SECONDS:
        yield [round(seconds * _MICROSECONDS) for seconds in map(attrgetter(name), rows)]
    for name in _BYTES:
        yield list(map(attrgetter(name), rows))


def _unpacked(packed: bytes) -> Iterator[tuple[SubtaskId, CheckpointMetrics]]:
    for vertex, indices, *columns in msgpack.unpackb(packed, unicode_errors="surrogatepass"):
        by_name = dict(zip((*_SECONDS, *_BYTES), columns, strict=True))
        for name in _SECONDS:
            by_name[name] = [each / _MICROSECONDS for each in by_name[name]]
        for index, *row in zip(indices, *by_name.values(), strict=True):
            yield SubtaskId(vertex, index), CheckpointMetrics(*row)
