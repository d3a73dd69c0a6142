"""A user's own connector: a source that reads text files no faster than a given number of bytes per second.

It wraps a `FileSource` and so shows all that a source of one's own needs: `splits`, `reader`, and a reader with
`poll`, `snapshot` and `close`. It never sleeps; it says when it wants to be asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime import ConnectorContext, FileSource, Polled, SourceReader


@dataclass(frozen=True)
class PacedText:
    """Lines of text files, at `bytes_per_second` over all subtasks together."""

    files: FileSource
    bytes_per_second: float

    def splits(self, parallelism: int) -> Sequence[Any]:
        """The splits of the files."""
        return self.files.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> PacedReader:
        """A reader that keeps to its subtask's share of the rate."""
        share = self.bytes_per_second / context.parallelism
        return PacedReader(self.files.reader(context, splits), context, share)


class PacedReader:
    """Gives a batch, then nothing until the time that the batch may take is over."""

    def __init__(self, reader: SourceReader[str], context: ConnectorContext, bytes_per_second: float) -> None:
        self._reader = reader
        self._clock = context.clock
        self._bytes_per_second = bytes_per_second
        self._next_at = context.clock.monotonic()

    def poll(self, max_rows: int) -> Polled[str]:
        """The next few lines when it is time for them."""
        now = self._clock.monotonic()
        if now < self._next_at:
            return Polled(ready_at=self._next_at)
        polled = self._reader.poll(min(max_rows, 200))
        if polled.batch is not None:
            taken = sum(len(line) + 1 for line in polled.batch.rows)
            self._next_at = max(self._next_at, now - 1.0) + taken / self._bytes_per_second
        return polled

    def snapshot(self) -> Sequence[Any]:
        """Where the files stand."""
        return self._reader.snapshot()

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
