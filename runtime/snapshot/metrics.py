"""Durations and sizes of checkpoints: of one subtask, and of a completed checkpoint.

How long a subtask's part of a checkpoint took, and how much was written.

Statistics of a completed checkpoint: counts of the job, and what each subtask measured.

They are part of the checkpoint's metadata, so they cost no operation of the storage. They live as long as the
checkpoint, also when another JobMaster takes over. (Flink keeps them in the memory of its JobManager: no
statistics survive the loss of that process.)

A job of a thousand subtasks has a thousand rows, so they are packed: columns instead of rows, whole
microseconds instead of floats. That is 15 to 36 bytes a subtask. They are unpacked only for display, because
a restart reads the metadata and does not need them. Nothing is ever decided by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any, Final

import msgpack

from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.sealed_file import binary, damaged, seconds, whole


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes that an alignment has stored of the channels that it blocked.

    Attributes:
        stored: Bytes in memory and on the disk of the node.
        spilled: Those of them on the disk.
    """

    stored: int = 0
    spilled: int = 0


#: What an alignment stores that holds its channels.
NOTHING_STORED: Final = StoredBytes()


@dataclass(frozen=True, slots=True)
class CheckpointMetrics:
    """Measurements of one subtask for one checkpoint; seconds and bytes.

    Attributes:
        start_delay: From the trigger at the coordinator to the first barrier here.
        alignment_duration: From the first barrier to the last, while channels were held back. 0 for at least
            once.
        sync_duration: The part that stopped the task.
        async_duration: The part beside the task.
        written_bytes: New bytes written for this checkpoint.
        full_bytes: Bytes of all the subtask's state in this checkpoint.
        in_flight_bytes: The part of them that was data between subtasks; 0 when the checkpoint was aligned
            here.
        stored_bytes: Bytes that the alignment stored; 0 when blocked channels were held. Not in the
            checkpoint.
        spilled_bytes: Those of them that went to the disk of the node.
    """

    start_delay: float = 0.0
    alignment_duration: float = 0.0
    sync_duration: float = 0.0
    async_duration: float = 0.0
    written_bytes: int = 0
    full_bytes: int = 0
    in_flight_bytes: int = 0
    stored_bytes: int = 0
    spilled_bytes: int = 0


_SECONDS: Final = ("start_delay", "alignment_duration", "sync_duration", "async_duration")

_BYTES: Final = ("written_bytes", "full_bytes", "in_flight_bytes")
#: Written only where an alignment has stored something.
_STORED: Final = ("stored_bytes", "spilled_bytes")

_MICROSECONDS: Final = 1_000_000

_WHAT: Final = "what the subtasks measured of a checkpoint"


@dataclass(frozen=True, slots=True)
class CompletedCheckpointStatistics:
    """Statistics of a checkpoint.

    Attributes:
        triggered: Checkpoints of the job that had been started when this one completed, including this one.
        completed: Checkpoints that had completed, including this one.
        failed: Checkpoints that had failed or been aborted. Those that still ran are in neither number.
        duration: Seconds from the trigger to the last acknowledgement, measured by a monotonic clock.
        subtasks: Number of subtasks that took part.
        written_bytes: New bytes that they wrote.
        in_flight_bytes: The part of them that was data between subtasks.
        packed: Metrics by subtask; `metrics` unpacks them.
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
        """Sum up and pack the metrics of a checkpoint.

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
        """Metrics by subtask, to the microsecond.

        Raises:
            CorruptSnapshotError: They can't be read; the checkpoint's state is not affected.
        """
        try:
            return dict(_unpacked(self.packed))
        except (ValueError, TypeError) as error:
            raise damaged(_WHAT, "a part of its metadata", f"it can't be decoded ({error})") from error

    def encode(self) -> list[Any]:
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
        """Decode what `encode` made; `None` when another version wrote other items, or none.

        Statistics are for people: a job starts from a snapshot even if they can't be read.
        """
        if not isinstance(item, list) or len(item) != len(fields(cls)):
            return None
        triggered, completed, failed, duration, subtasks, written, in_flight, packed = item
        try:
            return cls(
                whole(triggered),
                whole(completed),
                whole(failed),
                seconds(duration),
                whole(subtasks),
                whole(written),
                whole(in_flight),
                binary(packed),
            )
        except (TypeError, ValueError):
            return None


def subtask_rows(metrics: Mapping[SubtaskId, CheckpointMetrics]) -> list[dict[str, Any]]:
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
    names = (*_BYTES, *_STORED) if any(row.stored_bytes for row in rows) else _BYTES
    for name in names:
        yield list(map(attrgetter(name), rows))


def _unpacked(packed: bytes) -> Iterator[tuple[SubtaskId, CheckpointMetrics]]:
    for vertex, indices, *columns in msgpack.unpackb(packed, unicode_errors="surrogatepass"):
        has_stored = len(columns) > len(_SECONDS) + len(_BYTES)
        names = (*_SECONDS, *_BYTES, *(_STORED if has_stored else ()))
        by_name = dict(zip(names, columns, strict=True))
        for name in _SECONDS:
            by_name[name] = [each / _MICROSECONDS for each in by_name[name]]
        for index, *row in zip(indices, *by_name.values(), strict=True):
            yield SubtaskId(vertex, index), CheckpointMetrics(*row)
