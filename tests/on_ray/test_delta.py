"""A Delta table that a job on Ray writes exactly once, though its committer dies in the midst of commits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from jobs.deadly_committer import DeadlyTable
from jobs.driving import finish, submit
from jobs.words import environment, paced_lines

from penstock.delta import DeltaSink

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 6_000, 3_000.0


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
