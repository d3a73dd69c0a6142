"""The source of rows from Spark, and the reader of one subtask.

A split is one receive buffer, with the partitions that are assigned to it when their Spark tasks begin. Its
position is the number of frames that were read: a receive buffer keeps frames in the order of acceptance, so
that is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.bridge.arrow.record_format import RecordFormat
from penstock.bridge.dataframes_in.buffer_reader import BufferReader, BufferSplit
from penstock.bridge.receive_buffer.actor import receive_buffer_actor
from penstock.bridge.receive_buffer.frame_store import DEFAULT_MAX_DISK_BYTES
from penstock.bridge.receive_buffer.receive_buffer import DEFAULT_WINDOW
from penstock.runtime.io.connectors.arrow_rows import arrow_rows, rows_of_arrow
from penstock.runtime.operators.protocols import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

#: Seconds until a reader without frames looks again: at first, and at most.
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.016


@dataclass(frozen=True)
class SparkSource:
    """The rows of a DataFrame; made by `from_spark` and `from_structured_streaming`.

    Attributes:
        transfer: Id of the transfer, by which receive buffers find the program with the DataFrame.
        record_format: Arrow batches, or rows as dicts.
        window: Bytes that may wait for each reader before Spark has to wait.
        staged: Rows come in micro-batches of a streaming query.
        max_disk_bytes: Bytes that each receive buffer may hold in files.
        arrow_schema: Arrow schema of the DataFrame; `None` when it is not known.
    """

    only_reads: ClassVar[bool] = True

    transfer: str
    record_format: RecordFormat
    window: int = DEFAULT_WINDOW
    staged: bool = False
    max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES
    arrow_schema: pa.Schema | None = None

    def splits(self, parallelism: int) -> Sequence[BufferSplit]:
        """One receive buffer for each reader."""
        return [BufferSplit(index, parallelism) for index in range(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[BufferSplit]) -> SparkReader:
        """Make the reader of one subtask; starts its receive buffers if they don't run."""
        return SparkReader(self, context, splits)


class SparkReader:
    """Reads its receive buffers in turn: one that nobody reads would hold Spark tasks up.

    Args:
        splits: The receive buffers, and how far each was read.
    """

    makes_new_records: ClassVar[bool] = True

    def __init__(self, source: SparkSource, context: ConnectorContext, splits: Sequence[BufferSplit]) -> None:
        self._clock = context.clock
        self._arrow = source.record_format == "arrow"
        self._open = deque(BufferReader(_buffer(source, context, s), s, staged=source.staged) for s in splits)
        for split in self._open:
            split.wait_until_there()
        #: Positions by receive buffer at snapshots that are not known to be complete, oldest first.
        self._snapshots: deque[tuple[int, Mapping[int, BufferSplit]]] = deque()
        self._ended: list[BufferReader] = []
        self._pause = _PAUSE

    def poll(self, max_rows: int) -> Polled[Any]:
        """The next rows, from the next receive buffer that has some."""
        for _ in range(len(self._open)):
            split = self._open[0]
            batch = split.next_batch(arrow_rows(max_rows) if self._arrow else max_rows)
            if batch is not None:
                self._pause = _PAUSE
                self._open.rotate(-1)
                return Polled(ArrowBatch(batch) if self._arrow else RowBatch(rows_of_arrow(batch)))
            if split.is_finished:
                self._ended.append(self._open.popleft())
            else:
                self._open.rotate(-1)
        if not self._open:
            return Polled(finished=True)
        for split in self._open:
            split.report_emitted()
        ready_at = self._clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return Polled(ready_at=ready_at)

    def snapshot(self) -> Sequence[BufferSplit]:
        """The receive buffers that are not read to their end."""
        return [split.snapshot() for split in self._open]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """Remember which frames this checkpoint covers."""
        positions = {i: split.position for i, split in enumerate(self._all)}
        self._snapshots.append((checkpoint_id, positions))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Let the receive buffers release what the checkpoint covers."""
        covered: Mapping[int, BufferSplit] = {}
        while self._snapshots and self._snapshots[0][0] <= checkpoint_id:
            _, covered = self._snapshots.popleft()
        for number, split in enumerate(self._all):
            if number in covered:
                split.confirm(covered[number])

    def close(self) -> None:
        """Nothing to close: the receive buffers end with the job."""
        self._open.clear()

    @property
    def _all(self) -> list[BufferReader]:
        return sorted([*self._open, *self._ended], key=lambda split: split.position.index)


def _buffer(source: SparkSource, context: ConnectorContext, split: BufferSplit) -> Any:
    return receive_buffer_actor(
        context.job_id,
        source.transfer,
        split.index,
        split.of,
        source.window,
        source.staged,
        source.max_disk_bytes,
    )
