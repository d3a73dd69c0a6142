"""An Iceberg table that a job on Ray writes exactly once, though its committer dies around commits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from jobs.deadly_committer import DeadlyTable
from jobs.driving import finish, submit
from jobs.words import environment, paced_lines
from pyiceberg.catalog import load_catalog
from pyiceberg.table.snapshots import Operation

from penstock.iceberg import IcebergSink

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 6_000, 3_000.0
MERGED: dict[str, Any] = {"key": ["line"], "compact_below": 1_000_000, "compact_at": 3}


def as_row(line: str) -> dict[str, str]:
    return {"line": line}


@pytest.mark.parametrize(
    "settings", [pytest.param({}, id="appended", marks=pytest.mark.long), pytest.param(MERGED, id="merged")]
)
def test_a_committer_that_dies_before_and_after_a_commit_adds_each_row_once(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    env = environment(tmp_path, parallelism=2)
    schema = pa.schema({"line": pa.string()})
    sink = DeadlyTable(IcebergSink("shop.lines", schema, catalog=catalog, **settings), str(tmp_path))
    env.from_source("lines", paced_lines(COUNT, RATE, attempt=3, line=str)).map(as_row).sink("out", sink)

    result = finish(submit(env))

    table = load_catalog("default", **catalog).load_table("shop.lines")
    files = [path.removeprefix("file://") for path in table.inspect.files().column("file_path").to_pylist()]
    rows = duckdb.sql("SELECT line FROM read_parquet($1)", params=[files]).fetchall()
    assert Counter(line for (line,) in rows) == Counter(map(str, range(COUNT)))
    assert result.statistics.restarts == 2
    counts = [
        table.scan(snapshot_id=each.snapshot_id).count()
        for each in table.snapshots()
        if each.summary is not None and each.summary.operation is not Operation.REPLACE
    ]
    assert counts == sorted(set(counts))
    assert counts[-1] == COUNT
