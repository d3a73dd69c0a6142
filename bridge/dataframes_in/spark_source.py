"""The source of rows from Spark, and the reader of one subtask.

A split is a *share*: the partitions that are dealt to one depot (`partition_dealer.py`). Which these are
shows only when Spark runs. Its position is how many frames of its depot were read; since a depot keeps the
order in which it accepted frames, that is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.bridge.arrow.record_format import RecordFormat
from penstock.bridge.dataframes_in.buffer_reader import Share, ShareReader
from penstock.bridge.receive_buffer.actor_handle import depot_actor
from penstock.bridge.receive_buffer.receive_buffer import DEFAULT_WINDOW
from penstock.runtime.io.connectors.arrow_rows import rows_of_arrow
from penstock.runtime.operators.protocols import ConnectorContext, Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

#: Seconds until a reader without frames looks again, at first, and at most when it has looked in vain.
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.016
#: Arrow batches may be this much larger than asked for, as they cost nothing per row.
_ARROW_FACTOR: Final = 4


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
        self._open = deque(ShareReader(_depot(source, context, s), s, staged=source.staged) for s in shares)
        for share in self._open:
            share.wait_until_there()
        #: Positions by depot at snapshots that are not known to be complete, oldest first.
        self._snapshots: deque[tuple[int, Mapping[int, Share]]] = deque()
        self._ended: list[ShareReader] = []
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

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
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
    def _all(self) -> list[ShareReader]:
        return sorted([*self._open, *self._ended], key=lambda share: share.position.index)


def _depot(source: SparkSource, context: ConnectorContext, share: Share) -> Any:
    return depot_actor(context.job_id, source.hand_over, share.index, share.of, source.window, source.staged)
