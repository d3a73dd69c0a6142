"""A sink for simulated jobs that test a source: it keeps the records of each committed transaction once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit


class CollectedRecords:
    """The records that a `RecordsSink` has committed; all processes share it."""

    def __init__(self) -> None:
        self._transactions: dict[tuple[Any, ...], Sequence[Any]] = {}

    @property
    def rows(self) -> list[Any]:
        return [row for rows in self._transactions.values() for row in rows]

    def commit(self, name: tuple[Any, ...], rows: Sequence[Any]) -> None:
        self._transactions.setdefault(name, rows)


class RecordsSink:
    def __init__(self, records: CollectedRecords) -> None:
        self._records = records

    def writer(self, context: SinkContext) -> RecordsWriter:
        return RecordsWriter(self._records, (context.job_id, context.subtask, context.attempt))


class RecordsWriter:
    """Keeps the rows of a transaction; a checkpoint holds them with the transaction's name."""

    def __init__(self, records: CollectedRecords, owner: tuple[Any, ...]) -> None:
        self._records = records
        self._owner = owner
        self._number = 0
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        self._rows += rows_of(batch).rows

    def prepare_commit(self) -> Sequence[Any]:
        if not self._rows:
            return ()
        rows, self._rows, self._number = self._rows, [], self._number + 1
        return [((*self._owner, self._number), rows)]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        for name, rows in committables:
            self._records.commit(tuple(name), rows)

    def close(self) -> None:
        """Do nothing."""
