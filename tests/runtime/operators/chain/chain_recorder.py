"""An operator that writes down what its chain tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.runtime.operators.operator import Operator, OperatorContext, Output, SavedList
from penstock.runtime.record.elements import Batch, RowBatch, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit


class Recorder(Operator):
    """Passes everything on and writes down its calls."""

    def __init__(self, name: str, log: list[str], fail_on: str = "") -> None:
        self.name, self.log, self.fail_on = name, log, fail_on

    def note(self, what: str) -> None:
        self.log.append(f"{self.name} {what}")
        if what == self.fail_on:
            msg = f"{self.name} can't {what}"
            raise OSError(msg)

    def open(self, context: OperatorContext) -> None:
        self.note("open")

    def process(self, batch: Batch) -> Iterator[Output]:
        assert isinstance(batch, RowBatch)
        for row in batch.rows:
            self.note(f"row {row}")
            yield RowBatch([row])

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        self.note(f"watermark {watermark.timestamp}")
        yield RowBatch([f"{self.name}@{watermark.timestamp}"])

    def end_of_data(self) -> Iterator[Output]:
        self.note("end")
        yield RowBatch([f"{self.name}-end"])

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        self.note(f"snapshot {checkpoint_id}")
        return {"name": SavedList([self.name])}

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self.note(f"completed {permit.checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.note(f"aborted {checkpoint_id}")

    def close(self) -> None:
        self.note("close")
