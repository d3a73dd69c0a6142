"""`CollectSink`: committed rows go to a collector in the program; for notebooks and tests.

The rows themselves are the committable, so they travel in the checkpoint and a restored job hands them in
again under the same key. The collector keeps one entry per key, which makes that harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeAlias

from penstock.runtime.io.connectors.arrow_rows import rows_of
from penstock.runtime.misspelt_names import NearestNames
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit

#: Job, operator, subtask, attempt, and number of the transaction in that attempt.
CollectKey: TypeAlias = tuple[str, str, int, int, int]


class Collector(Protocol):
    """Where a `CollectSink` hands its committed rows in; pickled with the sink, it may be remote."""

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        """Take the rows of one transaction; a key that came before is ignored."""
        ...


@dataclass(frozen=True, slots=True)
class CollectedRows:
    """A pre-committed transaction of a `CollectSink`.

    Attributes:
        key: Names it.
    """

    key: CollectKey
    rows: Sequence[Any]


class InMemoryCollector:
    """A collector in this process, for jobs whose subtasks run here too: in tests, under the harness.

    A job on a cluster would fill copies of it that nobody sees, so it can't be sent there; that job wants a
    `penstock.actors.RayCollector`.

    Example:
        >>> collector = InMemoryCollector()
        >>> collector.add(("job-1", "out", 0, 1, 0), ["a"])
        >>> collector.add(("job-1", "out", 0, 1, 0), ["a"])
        >>> collector.rows()
        ['a']
    """

    def __init__(self) -> None:
        self._by_key: dict[CollectKey, list[Any]] = {}

    def add(self, key: CollectKey, rows: Sequence[Any]) -> None:
        """Take the rows of one transaction; a key that came before is ignored."""
        self._by_key.setdefault(key, list(rows))

    def rows(self) -> list[Any]:
        """All rows, transaction by transaction in the order of their commits."""
        return [row for rows in self._by_key.values() for row in rows]

    def __reduce__(self) -> NoReturn:
        msg = (
            "an InMemoryCollector stays in its process; collect the rows of a job on a cluster with "
            "CollectSink(penstock.actors.RayCollector())"
        )
        raise TypeError(msg)


@dataclass(frozen=True)
class CollectSink(metaclass=NearestNames):
    """A sink that hands committed rows to a collector; Arrow batches become dicts.

    Attributes:
        target: Where the rows go. Everything collected is held in memory and in checkpoints: for small
        results.
    """

    target: Collector

    def writer(self, context: ConnectorContext) -> CollectWriter:
        """Make the writer of one subtask."""
        return CollectWriter(self.target, context)


class CollectWriter:
    """Gathers the rows of one subtask.

    Args:
        target: Takes the rows of committed transactions.
    """

    def __init__(self, target: Collector, context: ConnectorContext) -> None:
        self._target = target
        self._of = (context.job_id, context.operator_id, context.subtask, context.attempt)
        self._open: list[Any] = []
        self._number = 0

    def write(self, batch: Batch) -> None:
        """Add records to the open transaction."""
        self._open.extend(rows_of(batch))

    def prepare_commit(self) -> Sequence[CollectedRows]:
        """End the open transaction."""
        if not self._open:
            return []
        ended = CollectedRows((*self._of, self._number), self._open)
        self._open = []
        self._number += 1
        return [ended]

    def commit(self, committables: Sequence[CollectedRows], permit: CommitPermit) -> None:
        """Hand transactions to the collector."""
        for each in committables:
            self._target.add(each.key, each.rows)

    def abort(self, committables: Sequence[CollectedRows]) -> None:
        """Nothing to remove: the rows are only in the committables."""

    def close(self) -> None:
        """Drop what is open."""
        self._open = []
