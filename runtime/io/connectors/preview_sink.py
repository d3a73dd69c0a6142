"""`PreviewSink`: rows go to a collector at once, and not when a checkpoint covers them; for quick looks.

Whoever looks wants to see rows of a stream that never ends. A job that restarted would hand rows in twice, so
the job of a quick look is not restarted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.io.connectors.arrow_rows import rows_of
from penstock.runtime.io.connectors.collect_sink import Collector
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit


@dataclass(frozen=True)
class PreviewSink:
    """A sink that hands rows in as they come; Arrow batches become dicts.

    Attributes:
        target: Where the rows go.
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
        self._number = 0

    def write(self, batch: Batch) -> None:
        """Hand records in, as many as are still wanted."""
        if self._left == 0:
            return
        rows = list(rows_of(batch))
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
        self._target.add((*self._of, self._number), rows)
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
