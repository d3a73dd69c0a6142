"""Partitions whose tasks stop once, after some rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.jobs import eventually, tell_executor


class StopsOnce:
    """Stops once in each of some partitions, after some rows, until it may fail; the next attempt does not.

    With `shift` the next attempt gives other rows.
    """

    def __init__(self, folder: Path, at: int, partitions: tuple[int, ...], *, shift: bool = False) -> None:
        self.folder = folder
        self.at = at
        self.partitions = partitions
        self.shift = shift

    def executor(self, partition: int) -> Path:
        return self.folder / f"stopped {partition}"

    def failed(self, partition: int) -> Path:
        return self.folder / f"failed {partition}"

    def may_fail(self, partition: int) -> None:
        (self.folder / f"may fail {partition}").touch()

    def __call__(self, batches: Any) -> Any:
        import pyarrow.compute as pc
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        partition = task.partitionId()
        chosen = partition in self.partitions
        again = self.executor(partition).exists()
        rows = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 10_000):
                piece = batch.slice(start, 10_000)
                if chosen and again and self.shift:
                    piece = piece.set_column(0, "id", pc.add(piece["id"], 1))
                yield piece
                rows += piece.num_rows
                if chosen and not again and rows >= self.at:
                    tell_executor(self.executor(partition))
                    eventually("the word to fail", (self.folder / f"may fail {partition}").exists)
                    self.failed(partition).touch()
                    raise ValueError("no luck this time")
