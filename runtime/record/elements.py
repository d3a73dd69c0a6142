"""Elements that flow between operators and between subtasks.

Inside a chain, operators hand each other *batches* (`RowBatch`, `ArrowBatch`). Between two subtasks a channel
carries *elements*: a *buffer*, whose *payload* is an encoded batch, or an *event*. A buffer never spans an
event, so a channel keeps the order in which elements were emitted. Only an unaligned barrier overtakes other
elements. One call between two processes carries a *frame* of elements.

Timestamps are event time in whole microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import PenstockError


def take_rows(batch: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
    """The rows at these indices, with columns of the same types.

    Arrow can't take rows from run-end-encoded columns and views. Such a column is decoded first, and the
    result is encoded again.
    """
    if not batch.num_columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(places), pa.struct([])))
    try:
        return batch.take(places)
    except pa.ArrowNotImplementedError:
        columns = [_taken(column, places) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch; a table without rows becomes a batch without rows."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _taken(column: pa.Array, places: pa.Array) -> pa.Array:
    kind = column.type
    if kinds.is_run_end_encoded(kind):
        import pyarrow.compute as pc  # takes 50 ms to load, and most subtasks never need it

        return pc.run_end_encode(pc.run_end_decode(column).take(places), run_end_type=kind.run_end_type)
    if kinds.is_string_view(kind):
        return column.cast(pa.string()).take(places).cast(kind)
    if kinds.is_binary_view(kind):
        return column.cast(pa.binary()).take(places).cast(kind)
    return column.take(places)


#: The watermark after which no record can follow: the end of event time.
END_OF_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RowBatch:
    """A list of records with, optionally, one event timestamp each.

    Attributes:
        rows: The records. A receiver of the batch must not change the list in place.
        timestamps: Event time of each row in microseconds, or `None` when the stream has none.

    Example:
        >>> len(RowBatch(["a", "b"]))
        2
    """

    rows: Sequence[Any]
    timestamps: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def slices(self, size: int) -> Iterator[RowBatch]:
        """Cut the batch into batches of at most `size` rows, in order.

        Example:
            >>> [b.rows for b in RowBatch([1, 2, 3]).slices(2)]
            [[1, 2], [3]]
        """
        if len(self.rows) <= size:
            yield self
            return
        for start in range(0, len(self.rows), size):
            stamps = None if self.timestamps is None else self.timestamps[start : start + size]
            yield RowBatch(self.rows[start : start + size], stamps)


@dataclass(frozen=True, slots=True)
class ArrowBatch:
    """An Arrow record batch, with or without one event timestamp per row.

    Attributes:
        batch: The columns; never changed in place.
        timestamps: Event time of each row in microseconds, an `int64` array without nulls, or `None` when the
            stream has none. They are not part of the columns: a step that replaces columns keeps them.

    Raises:
        PenstockError: The timestamps are of another type, or not one for each row.

    Example:
        >>> batch = ArrowBatch(pa.record_batch({"n": [1, 2, 3]}), pa.array([10, 20, 30]))
        >>> [(len(part), part.timestamps.to_pylist()) for part in batch.slices(2)]
        [(2, [10, 20]), (1, [30])]
    """

    batch: pa.RecordBatch
    timestamps: pa.Int64Array | None = None

    def __post_init__(self) -> None:
        stamps = self.timestamps
        if stamps is None:
            return
        if not isinstance(stamps, pa.Int64Array) or stamps.null_count:
            what = "an array with nulls" if isinstance(stamps, pa.Int64Array) else type(stamps).__name__
            msg = (
                f"the timestamps of an ArrowBatch are {what}; give a pyarrow array of type int64 without "
                "nulls, microseconds since the epoch, or None"
            )
            raise PenstockError(msg)
        if len(stamps) != len(self):
            msg = (
                f"an ArrowBatch of length {len(self)} has timestamps of length {len(stamps)}; "
                "give one timestamp for each row"
            )
            raise PenstockError(msg)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, start: int, rows: int | None = None) -> ArrowBatch:
        """A view of consecutive rows; from `start` to the end if `rows` is `None`."""
        stamps = self.timestamps
        return ArrowBatch(
            self.batch.slice(start, rows), None if stamps is None else stamps.slice(start, rows)
        )

    def slices(self, size: int) -> Iterator[ArrowBatch]:
        """Cut the batch into views of at most `size` rows, in order."""
        if len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self.slice(start, size)

    def take(self, places: pa.Array) -> ArrowBatch:
        """A copy of the rows at these indices, in this order."""
        stamps = self.timestamps
        return ArrowBatch(take_rows(self.batch, places), None if stamps is None else stamps.take(places))

    def filter(self, mask: pa.BooleanArray) -> ArrowBatch:
        """The rows where the mask is true; null counts as false. The batch itself if all rows stay."""
        if mask.true_count == len(self):
            return self
        stamps = self.timestamps
        try:
            chosen = self.batch.filter(mask)
        except pa.ArrowNotImplementedError:
            import pyarrow.compute as pc  # takes 50 ms to load, and most subtasks never need it

            return self.take(pc.indices_nonzero(mask))
        return ArrowBatch(chosen, None if stamps is None else stamps.filter(mask))


Batch: TypeAlias = RowBatch | ArrowBatch

#: Rows, or Arrow batches.
BatchFormat: TypeAlias = Literal["rows", "arrow"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A batch in its wire form: the unit that a channel carries, captures and counts."""

    payload: bytes
    rows: int

    @property
    def size(self) -> int:
        return len(self.payload)


@dataclass(frozen=True, slots=True, order=True)
class Watermark:
    """Later records on this channel with a timestamp up to `timestamp` (microseconds) are late."""

    timestamp: int


class StreamStatus(Enum):
    """Whether a channel counts for the receiver's watermark (Flink's `WatermarkStatus`)."""

    ACTIVE = "active"
    IDLE = "idle"


class SnapshotKind(Enum):
    """Reason for a snapshot; decides how its barrier behaves and who owns its files."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    SYNC_SAVEPOINT = "sync_savepoint"

    @property
    def is_savepoint(self) -> bool:
        return self is not SnapshotKind.CHECKPOINT


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Options of a checkpoint; its barrier carries them.

    Attributes:
        aligned_timeout: Seconds after which an aligned barrier turns unaligned; `None` for never.
        drain: Whether a synchronous savepoint first advances event time to its end, so that all timers and
            windows fire.
        location: URL of a savepoint's folder; `None` for the job's own checkpoint storage.
    """

    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    unaligned: bool = False
    aligned_timeout: float | None = None
    drain: bool = False
    location: str | None = None

    @property
    def may_overtake(self) -> bool:
        return self.unaligned or self.aligned_timeout is not None


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """Separates the data of checkpoint `checkpoint_id` from later data on a channel.

    Attributes:
        checkpoint_id: Id of the checkpoint; ids grow within a job, with gaps.
        timestamp: Trigger time at the coordinator, in seconds since the epoch.
        confirmed_id: The newest completed checkpoint when this one was triggered (-1 for none). This
            checkpoint may reuse state of the confirmed checkpoint, and of no other.
    """

    checkpoint_id: int
    timestamp: float
    options: CheckpointOptions = CheckpointOptions()
    confirmed_id: int = -1


@dataclass(frozen=True, slots=True)
class CancelCheckpointMarker:
    """Aborts checkpoint `checkpoint_id`: no subtask downstream needs to wait for its barrier."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No more records follow on this channel; barriers still may.

    Attributes:
        drain: Whether the final watermark is the end of event time, so that all timers and windows fire.
        savepoint_id: The savepoint that stops the job; `None` when the data itself has ended.
    """

    drain: bool = True
    savepoint_id: int | None = None


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """The last element of a channel."""


Event: TypeAlias = (
    Watermark | StreamStatus | CheckpointBarrier | CancelCheckpointMarker | EndOfData | EndOfPartition
)

StreamElement: TypeAlias = Buffer | Event
