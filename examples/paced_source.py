"""A user's own connector: text files, read a part at a time with a checkpoint in between.

It makes a job last for a given number of checkpoints on a machine of any speed. So a process can be killed in
the middle of the job. It wraps a `FileSource`; `own_connector.py` shows a source that wraps nothing. It never
sleeps: it returns the time of its next poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock import FileSource
from penstock.connectors import ConnectorContext, Polled, SourceReader
from penstock.operators import RowBatch

#: Seconds until a reader that has read its part is asked again.
_PATIENCE = 0.05


@dataclass(frozen=True)
class PacedText:
    """Lines of text files, about `bytes_per_checkpoint` of them from one checkpoint to the next."""

    files: FileSource[str]
    bytes_per_checkpoint: float

    def splits(self, parallelism: int) -> Sequence[Any]:
        """The splits of the files."""
        return self.files.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> PacedReader:
        """A reader that keeps to its subtask's share."""
        share = self.bytes_per_checkpoint / context.parallelism
        return PacedReader(self.files.reader(context, splits), context, share)


class PacedReader:
    """Reads its part, then nothing until the next checkpoint has come by."""

    def __init__(self, reader: SourceReader[str], context: ConnectorContext, part: float) -> None:
        self._reader = reader
        self._clock = context.clock
        self._part = part
        self._left = part

    def poll(self, max_rows: int) -> Polled[str]:
        """The next few lines of the part, or when to ask again."""
        if self._left <= 0:
            return Polled(ready_at=self._clock.monotonic() + _PATIENCE)
        polled = self._reader.poll(min(max_rows, 100))
        if isinstance(polled.batch, RowBatch):
            self._left -= sum(len(line.encode()) + 1 for line in polled.batch.rows)
        return polled

    def snapshot(self) -> Sequence[Any]:
        """Positions in the files; a checkpoint is being taken, so the next part may be read."""
        self._left = min(self._left, 0) + self._part
        return self._reader.snapshot()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
