"""The source of rows from Spark, and the reader of one subtask.

A split is one receive buffer, with the partitions that are assigned to it when their Spark tasks begin. Its
position is a frame and a row inside this frame. The position is exact, because a receive buffer keeps frames
in the order of acceptance.

A read is repeated while Ray can't reach the receive buffer. The buffer holds every frame until a checkpoint
covers it, so every call is idempotent. Rows are lost only if the buffer dies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import pyarrow as pa
import ray

from penstock.actors.shared.actor_calls import NoAnswerError, RepeatedCall, while_unavailable
from penstock.bridge.needed_part import NeededPart
from penstock.bridge.receive_buffer_actor import receive_buffer_actor
from penstock.bridge.receive_buffer_messages import DIED, UNREACHABLE, BufferSettings, Chunk, ReadFrame
from penstock.runtime.errors import LostInputError
from penstock.runtime.io.connectors.arrow_batches import arrow_rows, rows_of_arrow
from penstock.runtime.operators.source import ConnectorContext, NeededColumns, Polled
from penstock.runtime.operators.source_steps import SourceStep
from penstock.runtime.record.elements import ArrowBatch, BatchFormat, RowBatch

#: Maximum bytes of one read of a receive buffer.
_CHUNK_BYTES: Final = 8 * 1024 * 1024
#: Seconds that a read waits in the receive buffer for frames.
_READ_PATIENCE: Final = 2.0
#: Maximum seconds for the receive buffers to start.
_START: Final = 120.0
#: Maximum seconds for which a receive buffer may be unreachable.
_AWAY: Final = 60.0

_WHO: Final = "the process that holds the rows between Spark and the job"


@dataclass(frozen=True, slots=True)
class BufferSplit:
    """The split of a reader: one receive buffer, and the position in it.

    Attributes:
        buffer: Incarnation of the receive buffer that the position belongs to; empty before the first read.
        rows: Rows read so far, by partition.
        epoch: The newest micro-batch that was read completely; -1 for none.
        is_whole: Whether no row of a later micro-batch was read.
    """

    index: int
    of: int
    buffer: str = ""
    frame: int = 0
    row: int = 0
    rows: Mapping[int, int] = field(default_factory=dict)
    epoch: int = -1
    is_whole: bool = True


class BufferReader:
    """Reads one receive buffer; requests the next frames while earlier ones are processed."""

    def __init__(self, buffer: Any, split: BufferSplit, *, staged: bool) -> None:
        self.position = split
        self._rows = dict(split.rows)
        self._buffer = buffer
        epoch = split.epoch if split.is_whole else None
        self._attached = RepeatedCall[str](lambda: buffer.attach.remote(split.buffer, epoch), _WHO)
        self._next_frame = split.frame
        self._frames: deque[ReadFrame] = deque()
        self._batches: deque[pa.RecordBatch] = deque()
        self._partition = -1
        self._skip = split.row
        self._last = False
        self._staged = staged
        #: The epoch that was reported last.
        self._reported = split.epoch
        self._report: RepeatedCall[None] | None = None
        #: The newest epoch whose end is known from the receive buffer.
        self._known = split.epoch
        #: The newest epoch whose last frame is the current frame.
        self._ends: int | None = None

    @property
    def is_finished(self) -> bool:
        return self._last and not self._frames and not self._batches

    def wait_until_there(self) -> None:
        """Wait until the receive buffer has started."""
        try:
            instance = self._attached.answer(_START)
        except NoAnswerError as error:
            msg = (
                f"the process for the rows between Spark and the job did not start within {_START:g} s; "
                "check `ray status` for missing resources"
            )
            raise LostInputError(msg) from error
        except ray.exceptions.RayActorError as error:
            raise LostInputError(DIED) from error
        if self.position.buffer != instance:
            # The reader begins, or continues after a micro-batch; it reads this buffer's first frame next.
            self.position = replace(self.position, buffer=instance, frame=0, row=0)
            self._next_frame = self._skip = 0
        # A completed checkpoint covers the restored position.
        self.confirm(self.position)
        self._ask()

    def snapshot(self) -> BufferSplit:
        """Return the position with current row counts; `position` has old counts, to avoid copies."""
        return replace(self.position, rows=dict(self._rows))

    def confirm(self, position: BufferSplit) -> None:
        self._buffer.confirm.remote(position.frame, position.epoch)

    def report_emitted(self) -> None:
        """Report the end of a micro-batch; called at every poll without rows.

        The report is repeated until it arrives: only then does the query's program request a checkpoint.
        """
        if self._staged and self.position.is_whole and self._reported != self.position.epoch:
            self._reported = epoch = self.position.epoch
            self._report = RepeatedCall(lambda: self._buffer.emitted.remote(epoch), _WHO)
        elif self._report is not None and self._report.is_done():
            self._report = None

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        """Return at most `max_rows` rows; `None` if none have arrived."""
        if not self._batches and not self._open_frame():
            return None
        batch = self._batches.popleft()
        taken = batch.slice(0, max_rows)
        if taken.num_rows < batch.num_rows:
            self._batches.appendleft(batch.slice(max_rows))
        self._advance(taken.num_rows)
        return taken

    def _advance(self, rows: int) -> None:
        self._rows[self._partition] = self._rows.get(self._partition, 0) + rows
        old = self.position
        frame, row, epoch, is_whole = old.frame, old.row + rows, old.epoch, False
        if not self._batches:
            frame, row = frame + 1, 0
            if self._ends is not None:
                epoch, is_whole = self._ends, True
        self.position = replace(old, frame=frame, row=row, epoch=epoch, is_whole=is_whole)

    def _open_frame(self) -> bool:
        """Decode the next frame; return false if none has arrived."""
        if not self._frames:
            self._take_answer()
        if not self._frames:
            return False
        frame = self._frames.popleft()
        self._partition, self._ends = frame.partition, frame.ends
        skip, self._skip = self._skip, 0
        with pa.ipc.open_stream(frame.data) as stream:
            for batch in stream:
                dropped = min(skip, batch.num_rows)
                skip -= dropped
                if dropped < batch.num_rows:
                    self._batches.append(batch.slice(dropped))
        return True

    def _ask(self) -> None:
        # Checking a future is free; `ray.wait` in every poll took a fifth of a waiting reader's time.
        first, known = self._next_frame, self._known
        self._call = RepeatedCall[Chunk | str](
            lambda: self._buffer.read.remote(first, known, _CHUNK_BYTES, _READ_PATIENCE),
            _WHO,
            while_unavailable(_AWAY),
        )

    def _take_answer(self) -> None:
        if self._last or not self._call.is_done():
            return
        try:
            answer = self._call.result()
        except NoAnswerError as error:
            raise LostInputError(UNREACHABLE) from error
        except ray.exceptions.RayActorError as error:
            raise LostInputError(DIED) from error
        if isinstance(answer, str):
            msg = f"rows from Spark: {answer}"
            raise LostInputError(msg)
        self._frames.extend(answer.frames)
        self._next_frame += len(answer.frames)
        self._last = answer.complete
        self._known = answer.epoch
        if not answer.frames and answer.epoch > self.position.epoch:
            # Micro-batches have ended without a row for this reader.
            self.position = replace(self.position, epoch=answer.epoch, is_whole=True)
        if not self._last:
            self._ask()


#: Seconds between two checks of a reader without frames: the first and the longest pause.
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.016


@dataclass(frozen=True)
class SparkSource:
    """Source of the rows of a DataFrame.

    Attributes:
        arrow_schema: Schema of the whole DataFrame.
        padded: Columns of type CHAR or VARCHAR.
    """

    only_reads: ClassVar[bool] = True

    buffers: BufferSettings
    batch_format: BatchFormat
    arrow_schema: pa.Schema
    padded: frozenset[str] = frozenset()

    @property
    def part(self) -> str:
        return self.buffers.part.described(self.arrow_schema)

    def reading(self, needed: NeededColumns) -> SparkSource:
        """Return a source for which Spark transfers only the needed columns and rows."""
        part = NeededPart.of(self.arrow_schema, needed, self.padded)
        return replace(self, buffers=replace(self.buffers, part=part))

    @property
    def steps_run_in(self) -> str:
        return "Spark"

    def running(self, steps: Sequence[SourceStep]) -> SparkSource | None:
        """Return a source whose rows go through these steps in Spark's workers; `None` for dicts."""
        if self.batch_format != "arrow":
            return None
        cloudpickle: Any = ray.cloudpickle
        part = replace(self.buffers.part, steps=cloudpickle.dumps(tuple(steps)))
        return replace(self, buffers=replace(self.buffers, part=part))

    def splits(self, parallelism: int) -> Sequence[BufferSplit]:
        return [BufferSplit(index, parallelism) for index in range(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[BufferSplit]) -> SparkReader:
        return SparkReader(self, context, splits)


class SparkReader:
    makes_new_records: ClassVar[bool] = True

    def __init__(self, source: SparkSource, context: ConnectorContext, splits: Sequence[BufferSplit]) -> None:
        self._clock = context.clock
        self._arrow = source.batch_format == "arrow"
        self._open: deque[BufferReader] = deque()
        for split in splits:
            buffer = receive_buffer_actor(context.job_id, split.index, split.of, source.buffers)
            self._open.append(BufferReader(buffer, split, staged=source.buffers.staged))
        for reader in self._open:
            reader.wait_until_there()
        #: Positions by receive buffer at snapshots that are not known to be complete, oldest first.
        self._snapshots: deque[tuple[int, Mapping[int, BufferSplit]]] = deque()
        self._ended: list[BufferReader] = []
        self._pause = _PAUSE

    def poll(self, max_rows: int) -> Polled[Any]:
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
        return [split.snapshot() for split in self._open]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        positions = {i: split.position for i, split in enumerate(self._all)}
        self._snapshots.append((checkpoint_id, positions))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        covered: Mapping[int, BufferSplit] = {}
        while self._snapshots and self._snapshots[0][0] <= checkpoint_id:
            _, covered = self._snapshots.popleft()
        for number, split in enumerate(self._all):
            if number in covered:
                split.confirm(covered[number])

    def close(self) -> None:
        self._open.clear()

    @property
    def _all(self) -> list[BufferReader]:
        return sorted([*self._open, *self._ended], key=lambda split: split.position.index)
