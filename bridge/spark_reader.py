"""The source of rows from Spark, and the reader of one subtask.

A split is a *share*: the partitions that are dealt to one depot (`partition_dealer.py`). Which these are
shows only when Spark runs. Its position is how many frames of its depot were read; since a depot keeps the
order in which it accepted frames, that is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import ray

from penstock.bridge.depot import DEFAULT_WINDOW
from penstock.bridge.depot_failures import DIED
from penstock.bridge.depot_handle import depot_actor
from penstock.bridge.depot_messages import Chunk, ReadFrame
from penstock.runtime.errors import LostInputError
from penstock.runtime.io.connectors.arrow_rows import rows_of_arrow
from penstock.runtime.operators.protocols import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

RecordFormat: TypeAlias = Literal["arrow", "rows"]

#: Bytes that one read of a depot asks for.
_CHUNK_BYTES: Final = 8 * 1024 * 1024
#: Seconds that a read waits in the depot for frames.
_READ_PATIENCE: Final = 2.0
#: Seconds for the depots to start.
_START: Final = 120.0
#: Seconds until a reader without frames looks again, at first, and at most when it has looked in vain.
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.016
#: Arrow batches may be this much larger than asked for, as they cost nothing per row.
_ARROW_FACTOR: Final = 4


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions of one depot, and how far they were read.

    Attributes:
        index: Which depot.
        of: How many depots there are.
        depot: Stamp of the depot that the position is in; empty when nothing was read.
        frame: How many frames were read to their end.
        row: Rows that were read of the next one.
        rows: Rows read of each partition so far.
        epoch: The newest micro-batch that was read to its end; -1 for none.
        is_whole: Nothing was read behind the end of that.
    """

    index: int
    of: int
    depot: str = ""
    frame: int = 0
    row: int = 0
    rows: Mapping[int, int] = field(default_factory=dict)
    epoch: int = -1
    is_whole: bool = True


@dataclass(frozen=True)
class SparkSource:
    """The rows of a DataFrame; made by `from_spark` and `from_structured_streaming`.

    Attributes:
        hand_over: Id of the hand-over, under which its depots find the program with the DataFrame.
        record_format: Arrow batches, or rows as dicts.
        window: Bytes that may wait for each reader before Spark has to wait.
        staged: Rows come in micro-batches of a streaming query.
    """

    hand_over: str
    record_format: RecordFormat
    window: int = DEFAULT_WINDOW
    staged: bool = False

    def splits(self, parallelism: int) -> Sequence[Share]:
        """One share for each reader."""
        return [Share(index, parallelism) for index in range(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[Share]) -> SparkReader:
        """Make the reader of one subtask; starts the depots of its shares if they are not there."""
        return SparkReader(self, context, splits)


class SparkReader:
    """Reads the depots of its shares, all of them in turn: a depot that nobody reads holds Spark tasks up.

    Args:
        source: The source.
        context: Where it runs.
        shares: Depots, and how far each was read.
    """

    def __init__(self, source: SparkSource, context: ConnectorContext, shares: Sequence[Share]) -> None:
        self._clock = context.clock
        self._arrow = source.record_format == "arrow"
        self._open = deque(_ShareReader(source, context.job_id, share) for share in shares)
        for share in self._open:
            share.wait_until_there()
        #: Positions by depot at snapshots that are not known to be complete, oldest first.
        self._snapshots: deque[tuple[int, Mapping[int, Share]]] = deque()
        self._ended: list[_ShareReader] = []
        self._pause = _PAUSE

    def poll(self, max_rows: int) -> Polled[Any]:
        """The next rows of the next share that has some."""
        for _ in range(len(self._open)):
            share = self._open[0]
            batch = share.next_batch(max_rows * _ARROW_FACTOR if self._arrow else max_rows)
            if batch is not None:
                self._pause = _PAUSE
                self._open.rotate(-1)
                return Polled(ArrowBatch(batch) if self._arrow else RowBatch(rows_of_arrow(batch)))
            if share.is_finished:
                self._ended.append(self._open.popleft())
            else:
                self._open.rotate(-1)
        if not self._open:
            return Polled(finished=True)
        for share in self._open:
            share.tell_passed()
        ready_at = self._clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return Polled(ready_at=ready_at)

    def snapshot(self) -> Sequence[Share]:
        """The shares that are not read to their end."""
        return [share.snapshot() for share in self._open]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        """Remember which frames this checkpoint covers."""
        positions = {i: share.position for i, share in enumerate(self._all)}
        self._snapshots.append((checkpoint_id, positions))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Let the depots drop what is covered."""
        covered: Mapping[int, Share] = {}
        while self._snapshots and self._snapshots[0][0] <= checkpoint_id:
            _, covered = self._snapshots.popleft()
        for number, share in enumerate(self._all):
            if number in covered:
                share.confirm(covered[number])

    def close(self) -> None:
        """Nothing is held here; the depots end with the job."""
        self._open.clear()

    @property
    def _all(self) -> list[_ShareReader]:
        return sorted([*self._open, *self._ended], key=lambda share: share.position.index)


class _ShareReader:
    """Reads one depot, asking for the next frames while those at hand are worked off."""

    def __init__(self, source: SparkSource, job_id: str, share: Share) -> None:
        self.position = share
        self._rows = dict(share.rows)
        self._depot = depot_actor(
            job_id, source.hand_over, share.index, share.of, source.window, source.staged
        )
        self._hello = self._depot.hello.remote(share.depot, share.epoch if share.is_whole else None)
        self._asked = share.frame
        self._frames: deque[ReadFrame] = deque()
        self._batches: deque[pa.RecordBatch] = deque()
        self._partition = -1
        self._skip = share.row
        self._last = False
        self._staged = source.staged
        #: The epoch that the depot was told last.
        self._told = share.epoch
        #: The newest epoch whose end the depot has shown.
        self._known = share.epoch
        #: The epoch that ends behind the frame that is being read.
        self._ends: int | None = None

    @property
    def is_finished(self) -> bool:
        """Everything has been read."""
        return self._last and not self._frames and not self._batches

    def wait_until_there(self) -> None:
        """Wait until the depot has started.

        Raises:
            LostInputError: It has not, or it has died.
        """
        try:
            stamp: str = ray.get(self._hello, timeout=_START)
        except ray.exceptions.GetTimeoutError as error:
            msg = (
                f"the process for the rows between Spark and the job did not start within {_START:g} s; look "
                "at `ray status` for what the cluster lacks"
            )
            raise LostInputError(msg) from error
        except ray.exceptions.RayActorError as error:
            raise LostInputError(DIED) from error
        if self.position.depot != stamp:
            # It begins, or goes on behind a micro-batch: the first frame here is its next one.
            self.position = replace(self.position, depot=stamp, frame=0, row=0)
            self._asked = self._skip = 0
        # What it was restored with is covered by a completed checkpoint.
        self.confirm(self.position)
        self._ask()

    def snapshot(self) -> Share:
        """The position, with the rows of each partition: too many to be copied at every batch."""
        return replace(self.position, rows=dict(self._rows))

    def confirm(self, position: Share) -> None:
        """A completed checkpoint covers all that is before this position."""
        self._depot.confirm.remote(position.frame, position.epoch)

    def tell_passed(self) -> None:
        """Nothing is at hand: the end of a micro-batch may be reached, and a checkpoint worth while."""
        if self._staged and self.position.is_whole and self._told != self.position.epoch:
            self._told = self.position.epoch
            self._depot.passed.remote(self._told)

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        """The next rows, at most `max_rows`; `None` when there are none right now.

        Raises:
            LostInputError: The hand-over has failed; the message says why and what to do.
        """
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
        """Decode the next frame; false when none is at hand."""
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
        # A future costs nothing to look at; `ray.wait` in every poll took a fifth of a waiting reader's time.
        read = self._depot.read.remote(self._asked, self._known, _CHUNK_BYTES, _READ_PATIENCE)
        self._call = read.future()

    def _take_answer(self) -> None:
        if self._last or not self._call.done():
            return
        try:
            answer: Chunk | str = self._call.result()
        except ray.exceptions.RayActorError as error:
            raise LostInputError(DIED) from error
        if isinstance(answer, str):
            msg = f"rows from Spark: {answer}"
            raise LostInputError(msg)
        self._frames.extend(answer.frames)
        self._asked += len(answer.frames)
        self._last = answer.complete
        self._known = answer.epoch
        if not answer.frames and answer.epoch > self.position.epoch:
            # Micro-batches have ended without a row for this reader.
            self.position = replace(self.position, epoch=answer.epoch, is_whole=True)
        if not self._last:
            self._ask()
