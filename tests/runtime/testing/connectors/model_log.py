"""A model of a log with partitions, as Kafka has them, and a sound source for it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from served_model import Server

from penstock import ConnectorError
from penstock.connectors import (
    ConnectorContext,
    DeadLetter,
    Polled,
    SourceLag,
    SplitEnumeratorContext,
    SplitLag,
    SplitProgress,
)
from penstock.operators import RowBatch

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]


class Log(Server):
    """Partitions of encoded records."""

    def __init__(self) -> None:
        self.partitions: list[list[str]] = [[], []]

    def source(self) -> LogSource:
        return LogSource(self, self.secret)

    def write(self, records: Sequence[Any]) -> None:
        for number, record in enumerate(records):
            self.partitions[number % 2].append(json.dumps(record))

    def write_to(self, split: int, records: Sequence[Any]) -> None:
        self.partitions[split] += map(json.dumps, records)

    def write_bad(self) -> None:
        self.partitions[1].insert(2, "{")

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> LogSource:
        return LogSource(self, self.secret, on_error=on_error)

    def growing_source(self) -> LogSource:
        return LogSource(self, self.secret, bounded=False)

    def add_split(self, records: Sequence[Any]) -> None:
        self.partitions.append([json.dumps(record) for record in records])


@dataclass(frozen=True)
class Partition:
    """A split: its next offset, and the offset at which it ends, if it does."""

    number: int
    offset: int
    end: int | None


@dataclass(frozen=True)
class LogSource:
    log: Log
    password: str = field(repr=False)
    bounded: bool = True
    on_error: OnError = "fail"

    def splits(self, parallelism: int) -> list[Any]:
        return self.found(0)

    def found(self, known: int) -> list[Any]:
        """The partitions behind those that are known."""
        found = self.log.request(lambda: list(self.log.partitions), self.password)
        new = enumerate(found[known:], known)
        return [Partition(number, 0, len(rows) if self.bounded else None) for number, rows in new]

    def enumerator(self, context: SplitEnumeratorContext, state: Any) -> LogEnumerator:
        return LogEnumerator(self, context, state)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        return LogReader(self, splits)


class LogEnumerator:
    """Looks for new partitions again and again; the state is the number of known ones."""

    def __init__(self, source: LogSource, context: SplitEnumeratorContext, state: Any) -> None:
        self.source, self.context = source, context
        self.known = 0 if state is None else state
        self.is_listed = state is not None
        self.is_closed = False

    def start(self) -> None:
        if not self.is_listed or not self.source.bounded:
            self.look()

    def look(self) -> None:
        if not self.is_closed:
            self.context.run_in_background(lambda: self.source.found(self.known), self.listed)

    def listed(self, splits: list[Any]) -> None:
        self.is_listed = True
        self.known += len(splits)
        self.add_splits_back(splits)
        if not self.source.bounded:
            self.look()
            return
        for subtask in range(self.context.parallelism):
            self.context.signal_no_more_splits(subtask)

    def handle_split_request(self, subtask: int) -> None:
        if self.is_listed and self.source.bounded:
            self.context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        for split in splits:
            self.context.assign(split.number % self.context.parallelism, [split])

    def snapshot(self) -> Any:
        return self.known

    def close(self) -> None:
        self.is_closed = True


class LogReader:
    """Reads its partitions in turn."""

    def __init__(self, source: LogSource, splits: Sequence[Any]) -> None:
        self.source = source
        self.left: list[Partition] = list(splits)
        self.paused: Set[Hashable] = frozenset()

    @property
    def split_progress(self) -> SplitProgress:
        return SplitProgress(tuple(split.number for split in self.left))

    def add_splits(self, splits: Sequence[Any]) -> None:
        self.left += splits

    def pause_splits(self, paused: Set[Hashable]) -> None:
        self.paused = paused

    def poll(self, max_rows: int) -> Polled[Any]:
        for split in list(self.left):
            if split.end is not None and split.offset >= split.end:
                self.left.remove(split)
                continue
            end = split.offset + max_rows if split.end is None else min(split.end, split.offset + max_rows)
            texts = self.fetch(split, end)
            if texts and split.number not in self.paused:
                self.left.remove(split)
                self.left.append(self.behind(split, len(texts)))
                return self.polled(split, texts)
        return Polled(finished=not self.left)

    def lag(self) -> SourceLag:
        return SourceLag.of([self.lag_of(split) for split in self.left])

    def lag_of(self, split: Partition) -> SplitLag:
        return SplitLag(str(split.number), None if split.end is None else split.end - split.offset)

    def fetch(self, split: Partition, end: int) -> list[str]:
        log = self.source.log
        try:
            return log.request(lambda: log.partitions[split.number][split.offset : end], self.source.password)
        except OSError as error:
            raise ConnectorError(f"partition {split.number} can't be read: {error}") from error

    def behind(self, split: Partition, count: int) -> Partition:
        return replace(split, offset=split.offset + count)

    def polled(self, split: Partition, texts: list[str]) -> Polled[Any]:
        rows, letters = [], []
        for number, text in enumerate(texts, split.offset):
            try:
                rows.append(json.loads(text))
            except ValueError as error:
                place = f"partition {split.number}, offset {number}"
                if self.source.on_error == "fail":
                    raise ConnectorError(f"{place} has a bad record: {error}") from error
                letters.append(self.letter(text, str(error), place))
        is_skipped = self.source.on_error == "skip"
        return Polled(
            RowBatch(rows),
            dead_letters=() if is_skipped else letters,
            skipped=len(letters) if is_skipped else 0,
            split=split.number,
        )

    def letter(self, record: str, error: str, place: str) -> DeadLetter:
        return DeadLetter(record, error, place)

    def snapshot(self) -> Sequence[Any]:
        return list(self.left)

    def close(self) -> None:
        """Do nothing."""
