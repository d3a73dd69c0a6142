"""A sink with a bug that shows only after failures, and the corrected sink; the simulation tests both."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from penstock import Checkpointing, StreamEnvironment
from penstock.connectors import CommitPermit, ConnectorContext
from penstock.operators import Batch, RowBatch
from penstock.testing import SimulationReport, simulate


class Table:
    """A database outside the job."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.committed: set[Any] = set()


class HastySink:
    """Appends the rows of every commit, so a commit that is repeated after a failure repeats them."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def writer(self, context: ConnectorContext) -> Writer:
        """Make the writer of one subtask."""
        return Writer(self, (context.job_id, context.subtask, context.attempt))

    def commit(self, name: Any, rows: Sequence[int]) -> None:
        """Make a transaction visible."""
        self.table.rows.extend(rows)


class CarefulSink(HastySink):
    """Records the committed transactions in the table, so a repeated commit does nothing."""

    def commit(self, name: Any, rows: Sequence[int]) -> None:
        """Make a transaction visible."""
        if name not in self.table.committed:
            self.table.committed.add(name)
            super().commit(name, rows)


class Writer:
    """Gathers rows until a checkpoint; each transaction has a name of its own."""

    def __init__(self, sink: HastySink, of: tuple[Any, ...]) -> None:
        self._sink, self._of = sink, of
        self._open: list[int] = []
        self._number = 0

    def write(self, batch: Batch) -> None:
        """Add records to the open transaction."""
        assert isinstance(batch, RowBatch)
        self._open += batch.rows

    def prepare_commit(self) -> Sequence[Any]:
        """End the open transaction; the checkpoint holds its rows."""
        if not self._open:
            return []
        done, self._open, self._number = self._open, [], self._number + 1
        return [((*self._of, self._number), done)]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Make transactions visible."""
        for name, rows in committables:
            self._sink.commit(tuple(name), rows)

    def close(self) -> None:
        """Do nothing: the writer has no resources."""


def check(sink: type[HastySink], seeds: int) -> SimulationReport:
    """Simulate a job that writes to this sink, once for each seed below `seeds`."""

    def build() -> tuple[StreamEnvironment, Table]:
        table = Table()
        env = StreamEnvironment("numbers", parallelism=2, checkpointing=Checkpointing(every=60))
        env.from_collection("numbers", range(30)).sink("out", sink(table))
        return env, table

    return simulate(build, output=lambda table: table.rows, seeds=range(seeds), check=False)


if __name__ == "__main__":
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for kind in (HastySink, CarefulSink):
        report = check(kind, seeds)
        print(f"{kind.__name__}: {'passed' if report.passed else 'FAILED'}\n{report}\n")
