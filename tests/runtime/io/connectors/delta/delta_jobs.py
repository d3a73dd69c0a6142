"""Jobs of Delta tables, whose checkpoints a test decides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from penstock.delta import DeltaSink
from penstock.runtime.testing.connectors.sink_job import SinkCheckpoint, SinkJob


class TableWorld:
    """A table and the sink that writes it."""

    def __init__(self, folder: Path, schema: pa.Schema | None = None, **settings: Any) -> None:
        self.folder = folder / "table"
        self.schema, self.settings = schema, settings

    def sink(self) -> DeltaSink:
        return DeltaSink(self.folder, self.schema, **self.settings)

    def rows(self) -> list[Any]:
        return rows_of(self.folder)

    def job(self, records: Sequence[Any], **settings: Any) -> SinkJob:
        return SinkJob(self, records, **settings)

    def finish(self, records: Sequence[Any], **settings: Any) -> None:
        """Run a whole job."""
        self.job(records, **settings).start().finish()

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.folder)


def rows_of(folder: Path, version: int | None = None) -> list[Any]:
    rows: list[Any] = DeltaTable(folder, version=version).to_pyarrow_table().to_pylist()
    return rows


def counted_by_duckdb(folder: Path) -> int:
    """The rows of a table, counted by DuckDB in the files that the log names, as JSON."""
    files: set[str] = set()
    for entry in sorted((folder / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files.add(action["add"]["path"])
            if "remove" in action:
                files.remove(action["remove"]["path"])
    if not files:
        return 0
    found = duckdb.sql("SELECT count(*) FROM read_parquet($1)", params=[[str(folder / f) for f in files]])
    ((count,),) = found.fetchall()
    return int(count)


def numbers(count: int, first: int = 0) -> list[dict[str, int]]:
    return [{"number": number} for number in range(first, first + count)]


def in_order(rows: Sequence[dict[str, Any]], name: str = "number") -> list[Any]:
    return sorted(row[name] for row in rows)


def completed(job: SinkJob) -> SinkCheckpoint:
    assert job.completed is not None, "a checkpoint is complete"
    return job.completed


def restored(world: TableWorld, records: Sequence[Any], point: SinkCheckpoint) -> SinkJob:
    """A new job that starts from a snapshot of another one."""
    return world.job(records, restored=point)
