"""`PreviewSink`: rows go to a collector at once, and not when a checkpoint covers them; for quick looks.

A stream that never ends has no last checkpoint, and a look at it takes none. The job of a quick look is not
restarted either. Only the death of its JobMaster begins another attempt, which hands all rows in again. So
each piece says which attempt it is of, and the rows of the newest one count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.runtime.io.connectors.arrow_rows import rows_of
from penstock.runtime.io.connectors.collect_sink import Collector
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit


class Preview(NamedTuple):
    """Rows that a subtask handed in together."""

    attempt: int
    rows: Sequence[Any]


def newest_rows(pieces: Sequence[Preview]) -> list[Any]:
    """The rows of the newest attempt, in the order in which they came.

    Example:
        >>> newest_rows([Preview(1, ["a"]), Preview(2, ["a", "b"]), Preview(2, ["c"])])
        ['a', 'b', 'c']
    """
    newest = max((piece.attempt for piece in pieces), default=0)
    return [row for piece in pieces if piece.attempt == newest for row in piece.rows]


@dataclass(frozen=True)
class PreviewSink:
    """A sink that hands each `Preview` in as it comes; Arrow batches become dicts.

    Attributes:
        target: Where they go.
        limit: Rows of each subtask after which no more are handed in; `None` for all.
    """

    target: Collector
    limit: int | None = None

    def writer(self, context: ConnectorContext) -> PreviewWriter:
        """Make the writer of one subtask."""
        return PreviewWriter(self.target, self.limit, context)


class PreviewWriter:
    """Hands in the rows of one subtask."""

    def __init__(self, target: Collector, limit: int | None, context: ConnectorContext) -> None:
        self._target = target
        self._left = limit
        self._of = (context.job_id, context.operator_id, context.subtask, context.attempt)
        self._attempt = context.attempt
        self._number = 0

    def write(self, batch: Batch) -> None:
        """Hand records in, as many as are still wanted."""
        if self._left == 0:
            return
        rows = list(rows_of(batch))
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
        self._target.add((*self._of, self._number), [Preview(self._attempt, rows)])
        self._number += 1

    def prepare_commit(self) -> Sequence[Any]:
        """Nothing is held back."""
        return []

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Nothing is left to commit."""

    def abort(self, committables: Sequence[Any]) -> None:
        """Nothing was promised."""

    def close(self) -> None:
        """Nothing is open."""
