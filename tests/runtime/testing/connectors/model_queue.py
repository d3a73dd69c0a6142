"""A model of a queue that sends a record until it is acknowledged, and a sound source for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from served_model import Server

from penstock import ConnectorError
from penstock.connectors import ConnectorContext, Polled
from penstock.operators import RowBatch


class Queue(Server):
    """Each record has a number, and goes to one reader. A newer attempt gets all that is unacknowledged."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.done: set[int] = set()
        self.sent: set[int] = set()
        self.attempt = 0

    def source(self) -> QueueSource:
        return QueueSource(self)

    def write(self, records: Sequence[Any]) -> None:
        self.records += records

    def acknowledged(self) -> list[Any]:
        return [self.records[number] for number in sorted(self.done)]

    def connect(self, attempt: int) -> None:
        self.fence(attempt)
        if attempt > self.attempt:
            self.attempt, self.sent = attempt, set()

    def fence(self, attempt: int) -> None:
        if attempt < self.attempt:
            raise ConnectionAbortedError(f"attempt {attempt} was superseded by {self.attempt}")

    def next(self, attempt: int, count: int) -> list[int]:
        self.fence(attempt)
        left = [n for n in range(len(self.records)) if n not in self.sent | self.done]
        self.sent.update(left[:count])
        return left[:count]

    def acknowledge(self, numbers: Sequence[int]) -> None:
        self.done.update(numbers)


@dataclass(frozen=True)
class QueueSource:
    queue: Queue

    def splits(self, parallelism: int) -> list[Any]:
        return [()] * parallelism

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        return QueueReader(self.queue, context, splits)


class QueueReader:
    """Its only split has the numbers that it has read and not acknowledged.

    A restore finds numbers there that a checkpoint covers: their acknowledgement may have been lost.
    """

    def __init__(self, queue: Queue, context: ConnectorContext, splits: Sequence[Any]) -> None:
        self.queue, self.attempt = queue, context.attempt
        self.read: list[int] = [number for split in splits for number in split]
        self.covered: dict[int, list[int]] = {}
        self.request(lambda: queue.connect(self.attempt))
        self.acknowledge(self.read)

    def request(self, effect: Any) -> Any:
        try:
            return self.queue.request(effect, self.queue.secret)
        except OSError as error:
            raise ConnectorError(f"the queue does not answer: {error}; start its server") from error

    def acknowledge(self, numbers: list[int]) -> None:
        if numbers:
            self.request(lambda: self.queue.acknowledge(numbers))
        self.read = [number for number in self.read if number not in numbers]

    def poll(self, max_rows: int) -> Polled[Any]:
        numbers = self.request(lambda: self.queue.next(self.attempt, max_rows))
        self.read += numbers
        rows = [self.queue.records[number] for number in numbers]
        return Polled(RowBatch(rows), finished=not numbers)

    def snapshot(self) -> Sequence[Any]:
        return [tuple(self.read)]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self.covered[checkpoint_id] = list(self.read)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.acknowledge(self.covered.pop(checkpoint_id, []))

    def close(self) -> None:
        """Do nothing."""


class EndlessReader(QueueReader):
    """Waits for more records at the end, and does not remember what it has read: records may come again."""

    def poll(self, max_rows: int) -> Polled[Any]:
        return replace(super().poll(max_rows), finished=False)

    def snapshot(self) -> Sequence[Any]:
        return [()]


@dataclass(frozen=True)
class EndlessSource(QueueSource):
    reader_class: type[QueueReader] = EndlessReader

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        return self.reader_class(self.queue, context, splits)


class EndlessQueue(Queue):
    def __init__(self, reader: type[QueueReader] = EndlessReader) -> None:
        super().__init__()
        self.reader_class = reader

    def source(self) -> QueueSource:
        return EndlessSource(self, self.reader_class)
