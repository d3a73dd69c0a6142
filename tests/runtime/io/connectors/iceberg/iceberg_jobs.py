"""Jobs of Iceberg tables in a SQLite catalog, whose checkpoints a test decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from penstock.iceberg import IcebergSink
from penstock.runtime.testing.connectors.sink_job import SinkJob

TABLE = "shop.orders"
SCHEMA = pa.schema({"number": pa.int64()})


def catalog_in(folder: Path) -> dict[str, str]:
    """Properties of a catalog in a SQLite database, with the tables beside it."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


class TableWorld:
    """A table and the sink that writes it."""

    def __init__(self, folder: Path, schema: pa.Schema | None = None, **settings: Any) -> None:
        self.folder = folder
        self.catalog = catalog_in(folder)
        self.schema, self.settings = schema, settings

    def sink(self) -> IcebergSink:
        return IcebergSink(TABLE, self.schema, catalog=self.catalog, **self.settings)

    def rows(self) -> list[Any]:
        return rows_of(self.table) if self.opened.table_exists(TABLE) else []

    def job(self, records: Sequence[Any], **settings: Any) -> SinkJob:
        return SinkJob(self, records, **settings)

    def finish(self, records: Sequence[Any], **settings: Any) -> None:
        """Run a whole job."""
        self.job(records, **settings).start().finish()

    @property
    def opened(self) -> Catalog:
        return load_catalog("default", **self.catalog)

    @property
    def table(self) -> Table:
        return self.opened.load_table(TABLE)

    def make(self, schema: pa.Schema = SCHEMA) -> Table:
        """Create the table, as another program does."""
        self.opened.create_namespace_if_not_exists("shop")
        return self.opened.create_table(TABLE, schema)

    def append(self, rows: Sequence[Any], schema: pa.Schema = SCHEMA) -> None:
        """Append rows, as another program does."""
        self.table.append(pa.Table.from_pylist(list(rows), schema))

    def counts(self, branch: str = "main") -> list[int]:
        """Rows of each snapshot of a branch, from the oldest."""
        table = self.table
        found = []
        head = table.snapshot_by_name(branch)
        while head is not None:
            found.append(len(rows_of(table, head.snapshot_id)))
            head = None if head.parent_snapshot_id is None else table.snapshot_by_id(head.parent_snapshot_id)
        return found[::-1]


def rows_of(table: Table, snapshot: int | None = None) -> list[Any]:
    rows: list[Any] = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return rows


def counted_by_duckdb(table: Table) -> int:
    """The rows of a table, counted by DuckDB in the files that its newest snapshot names."""
    files = [file.removeprefix("file://") for file in table.inspect.files().column("file_path").to_pylist()]
    if not files:
        return 0
    ((count,),) = duckdb.sql("SELECT count(*) FROM read_parquet($1)", params=[files]).fetchall()
    return int(count)


def numbers(count: int, first: int = 0) -> list[dict[str, int]]:
    return [{"number": number} for number in range(first, first + count)]


def in_order(rows: Sequence[dict[str, Any]], name: str = "number") -> list[Any]:
    return sorted(row[name] for row in rows)
