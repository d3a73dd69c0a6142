"""A connector of your own: a source that is read in parts, with a checkpoint between two parts.

It makes a job last for a given number of checkpoints, however fast the machine is. So a process can be killed
in the middle of the job. It wraps another source; `own_connector.py` shows a source that wraps nothing. It
never sleeps: it returns the time of its next poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.connectors import ConnectorContext, Polled, Source, SourceReader
from penstock.operators import RowBatch

T = TypeVar("T")

#: Seconds until a reader that has read its part is polled again.
_PATIENCE = 0.05


@dataclass(frozen=True)
class PacedSource(Generic[T]):
    """The rows of a source; reads about `rows_per_checkpoint` of them between two checkpoints."""

    source: Source[T]
    rows_per_checkpoint: float

    def splits(self, parallelism: int) -> Sequence[Any]:
        """The splits of the source."""
        return self.source.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> PacedReader[T]:
        """Make the reader of one subtask, with the subtask's share of the rows."""
        share = self.rows_per_checkpoint / context.parallelism
        return PacedReader(self.source.reader(context, splits), context, share)


class PacedReader(Generic[T]):
    """Reads one part, and then nothing until the next checkpoint."""

    def __init__(self, reader: SourceReader[T], context: ConnectorContext, part: float) -> None:
        self._reader = reader
        self._clock = context.clock
        self._part = part
        self._left = part

    def poll(self, max_rows: int) -> Polled[T]:
        """Return the next rows of the part, or the time of the next poll."""
        if self._left <= 0:
            return Polled(ready_at=self._clock.monotonic() + _PATIENCE)
        polled = self._reader.poll(min(max_rows, 100))
        if isinstance(polled.batch, RowBatch):
            self._left -= len(polled.batch)
        return polled

    def snapshot(self) -> Sequence[Any]:
        """Return the positions in the source; the next part may be read after this checkpoint."""
        self._left = min(self._left, 0) + self._part
        return self._reader.snapshot()

    def close(self) -> None:
        """Close the source."""
        self._reader.close()
