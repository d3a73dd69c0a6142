"""A Delta table that a job on Ray writes exactly once, though its committer dies in the midst of commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from jobs.driving import finish, submit
from jobs.faults import first_time, kill_this_process
from jobs.words import environment, paced_lines

from penstock.connectors import CommitPermit, SinkContext, SinkWriter
from penstock.delta import DeltaSink
from penstock.operators import Batch

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 6_000, 3_000.0


@dataclass(frozen=True)
class DeadlyTable:
    """A Delta sink whose committer kills its process before its first commit, and after its second one."""

    inner: DeltaSink
    folder: str

    def writer(self, context: SinkContext) -> Any:
        return self.inner.writer(context)

    def committer(self, context: SinkContext) -> SinkWriter[Any]:
        return DeadlyCommitter(self.inner.committer(context), Path(self.folder))


class DeadlyCommitter:
    def __init__(self, inner: SinkWriter[Any], folder: Path) -> None:
        self._inner, self._folder = inner, folder

    def write(self, batch: Batch) -> None:
        self._inner.write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        return self._inner.prepare_commit()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        if first_time(str(self._folder / "before")):
            kill_this_process()
        self._inner.commit(committables, permit)
        if first_time(str(self._folder / "after")):
            kill_this_process()

    def close(self) -> None:
        self._inner.close()


def as_row(line: str) -> dict[str, str]:
    return {"line": line}


def test_a_committer_that_dies_before_and_after_a_commit_adds_each_row_once(tmp_path: Path) -> None:
    table = tmp_path / "table"
    env = environment(tmp_path, parallelism=2)
    sink = DeadlyTable(DeltaSink(table, pa.schema({"line": pa.string()})), str(tmp_path))
    env.from_source("lines", paced_lines(COUNT, RATE, attempt=3, line=str)).map(as_row).sink("out", sink)

    result = finish(submit(env))

    rows = Counter(row["line"] for row in DeltaTable(table).to_pyarrow_table().to_pylist())
    assert rows == Counter(map(str, range(COUNT)))
    assert result.statistics.restarts == 2
    counts = [
        DeltaTable(table, version=version).to_pyarrow_table().num_rows
        for version in range(DeltaTable(table).version() + 1)
    ]
    assert counts == sorted(counts)
