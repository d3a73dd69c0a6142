"""A model of a database with transactions, and a sound sink for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from served_model import Server

from penstock import ConnectorError
from penstock.connectors import CommitPermit, SinkContext
from penstock.operators import Batch, RowBatch

#: Job, operator, attempt, subtask, and number in the attempt.
Name: TypeAlias = tuple[str, str, int, int, int]


class Table(Server):
    """Its transactions have names; one that is committed once is ignored from then on."""

    def __init__(self) -> None:
        self.visible: list[Any] = []
        self.open: dict[Name, list[Any]] = {}
        self.committed: set[Name] = set()
        #: For a sink with a fault: its newest committed checkpoint.
        self.newest = 0

    def rows(self) -> list[Any]:
        return list(self.visible)

    def hidden(self) -> list[Name]:
        return list(self.open)

    def sink(self) -> TableSink:
        return TableSink(self, self.secret)

    def append(self, name: Name, part: int, rows: Sequence[Any]) -> None:
        """Add the rows of a part of a transaction; a part that is known is ignored."""
        if any(row == {"number": None} for row in rows):
            raise ValueError("a number must not be null")
        parts = self.open.setdefault(name, [])
        if part == len(parts):
            parts.append(list(rows))

    def commit(self, name: Name) -> None:
        if name not in self.committed:
            self.committed.add(name)
            self.visible += [row for part in self.open.pop(name) for row in part]

    def abort(self, name: Name) -> None:
        self.open.pop(name, None)


@dataclass(frozen=True)
class TableSink:
    table: Table
    password: str = field(repr=False)

    def writer(self, context: SinkContext) -> TableWriter:
        return TableWriter(self, context)

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Name]) -> None:
        keep = set(map(tuple, covered))
        for name in self.table.hidden():
            if name[:2] == (job_id, operator_id) and name not in keep:
                self.table.request(lambda name=name: self.table.abort(name), self.password)  # type: ignore[misc]


class TableWriter:
    """Sends rows at once; a transaction is hidden until its commit."""

    def __init__(self, sink: TableSink, context: SinkContext) -> None:
        self.sink, self.context = sink, context
        self.number = self.part = 0
        self.request(lambda: None)

    def request(self, effect: Any) -> Any:
        try:
            return self.sink.table.request(effect, self.sink.password)
        except (OSError, ValueError) as error:
            raise ConnectorError(f"the table can't be written: {error}; start its server") from error

    def name(self) -> Name:
        at = self.context
        return at.job_id, at.operator_id, at.attempt, at.subtask, self.number

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        if len(batch):
            name, part = self.name(), self.part
            self.request(lambda: self.sink.table.append(name, part, batch.rows))
            self.part += 1

    def prepare_commit(self) -> Sequence[Any]:
        if not self.part:
            return ()
        name, self.number, self.part = self.name(), self.number + 1, 0
        return [name]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        for name in committables:
            self.request(lambda name=name: self.sink.table.commit(tuple(name)))  # type: ignore[misc]

    def remove_leftovers(self, permit: CommitPermit) -> None:
        for name in self.sink.table.hidden():
            if self.is_leftover(name):
                self.request(lambda name=name: self.sink.table.abort(name))  # type: ignore[misc]

    def is_leftover(self, name: Name) -> bool:
        return name[:2] == (self.context.job_id, self.context.operator_id) and name[2] < self.context.attempt

    def close(self) -> None:
        """Leave everything as it is."""
