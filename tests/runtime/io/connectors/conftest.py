from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.runtime.operators.source import ConnectorContext, DeadLetter, Source, SourceReader
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit, permit_of_completed_checkpoint


class ManualClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


@dataclass
class ReadBack:
    rows: list[Any] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    skipped: int = 0
    largest: int = 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def context(clock: ManualClock) -> Callable[..., ConnectorContext]:
    def make(
        *,
        operator: str = "files",
        subtask: int = 0,
        parallelism: int = 1,
        attempt: int = 1,
        job: str = "job-1",
    ) -> ConnectorContext:
        return ConnectorContext(job, "a job", operator, subtask, parallelism, attempt, clock)

    return make


@pytest.fixture
def permit() -> CommitPermit:
    return permit_of_completed_checkpoint(1, 1)


@pytest.fixture
def drain() -> Callable[..., ReadBack]:
    """Read a reader to its end, or until some records were given."""

    def read(reader: SourceReader[Any], max_rows: int = 1000, stop_after: int | None = None) -> ReadBack:
        back = ReadBack()
        while stop_after is None or len(back.rows) < stop_after:
            polled = reader.poll(max_rows)
            back.dead_letters.extend(polled.dead_letters)
            back.skipped += polled.skipped
            if polled.batch is not None:
                rows = (
                    polled.batch.rows
                    if not isinstance(polled.batch, ArrowBatch)
                    else polled.batch.batch.to_pylist()
                )
                back.largest = max(back.largest, len(rows))
                back.rows.extend(rows)
            if polled.finished:
                return back
        return back

    return read


@pytest.fixture
def read_all(
    context: Callable[..., ConnectorContext], drain: Callable[..., ReadBack]
) -> Callable[..., ReadBack]:
    """Read a source with one subtask, restoring into a new reader after every `restore_every` polls."""

    def read(source: Source[Any], max_rows: int = 1000, restore_every: int = 0) -> ReadBack:
        splits: Sequence[Any] = source.splits(1)
        if not restore_every:
            reader = source.reader(context(), splits)
            back = drain(reader, max_rows)
            reader.close()
            return back
        back = ReadBack()
        while True:
            reader = source.reader(context(), splits)
            for _ in range(restore_every):
                polled = reader.poll(max_rows)
                back.dead_letters.extend(polled.dead_letters)
                back.skipped += polled.skipped
                if polled.batch is not None:
                    batch = polled.batch
                    back.rows.extend(batch.batch.to_pylist() if isinstance(batch, ArrowBatch) else batch.rows)
                if polled.finished:
                    reader.close()
                    return back
            splits = reader.snapshot()
            reader.close()

    return read
