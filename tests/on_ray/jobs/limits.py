"""A job whose operator has a coordinator: subtasks report counts and receive each new limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.words import environment

from penstock import FileSink, StreamEnvironment
from penstock.connectors import Source
from penstock.operators import (
    CoordinatorAnswer,
    Operator,
    OperatorContext,
    OperatorCoordinator,
    OperatorCoordinatorContext,
    RowBatch,
)


class Limits(OperatorCoordinator):
    """Adds counts up; all subtasks receive each limit that is reached."""

    def __init__(self, context: OperatorCoordinatorContext, every: int) -> None:
        self.context, self.every = context, every

    def handle_event(self, subtask: int, event: int) -> None:
        self.total += event
        while self.total >= (self.limit + 1) * self.every:
            self.limit += 1
            for each in range(self.context.parallelism):
                self.context.send_event(each, self.limit)

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        answer.complete((self.total, self.limit))

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        self.total, self.limit = state or (0, 0)


class Limited(Operator):
    """Reports each line; a limit that is left out, or comes twice, fails the job."""

    def __init__(self, every: int) -> None:
        self.every = every

    def coordinator(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        return Limits(context, self.every)

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.saved = context.operator_list_state("limit", "union")
        self.limit = max(self.saved.get(), default=0)

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.context.send_event(len(batch))
        yield RowBatch([{"line": line, "limit": self.limit} for line in batch.rows])

    def handle_event(self, event: int) -> None:
        assert event == self.limit + 1, f"limit {event} came behind limit {self.limit}"
        self.limit = event

    def snapshot(self, checkpoint_id: int) -> None:
        self.saved.update([self.limit])


def limited(tmp_path: Path, source: Source[str], every: int, **options: Any) -> StreamEnvironment:
    """lines -> limited -> the folder `out`; the last checkpoint stays."""
    env = environment(tmp_path, keep_after="always", **options)
    stream = env.from_source("lines", source).rebalance().transform("limited", Limited(every))
    stream.sink("out", FileSink.json(tmp_path / "out"))
    return env
