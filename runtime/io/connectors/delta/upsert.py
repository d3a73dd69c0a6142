"""Merges staged rows into a table by key: the last row of each key wins.

The rows of one commit are in memory while they are merged. They are ordered by checkpoint, then by subtask,
then as they were written. So rows of one key must come from one subtask, as after `key_by`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.io.connectors.delta.staging import StagedFile
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.io.connectors.tables.changes import DELETED
from penstock.runtime.io.connectors.tables.keys import last_of_each

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


def merge(table: DeltaTable, rows: pa.Table, key: Sequence[str], properties: CommitProperties) -> None:
    """Replace or delete the rows that have the keys of `rows`, and add those that are new."""
    same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in key)
    merger = table.merge(
        rows, same, source_alias="source", target_alias="target", commit_properties=properties
    )
    if DELETED not in rows.column_names:
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        return
    deleted = f"source.{DELETED}"
    merger.when_matched_delete(deleted)
    merger.when_matched_update_all(except_cols=[DELETED])
    merger.when_not_matched_insert_all(f"NOT {deleted}", except_cols=[DELETED]).execute()


def staged_rows(
    system: FileSystem, path: str, files: Sequence[StagedFile], schema: pa.Schema, key: Sequence[str]
) -> pa.Table:
    """Read staged files with the columns of a table; keeps the last row of each key."""
    import pyarrow.parquet as pq  # slow to load

    # Deletions have null outside the key. The writers have checked the other rows for null.
    schema = pa.schema([field.with_nullable(True) for field in schema])
    parts = []
    for file in files:
        handle: Any = system.open_input(f"{path}/{file.path}")
        try:
            parts.append(_filled(pq.ParquetFile(handle).read(), schema))
        finally:
            handle.close()
    rows = pa.concat_tables(parts)
    if not pc.any(rows.column(DELETED)).as_py():
        rows = rows.drop_columns([DELETED])  # most checkpoints have only upserts
    return last_of_each(rows, key)


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    is_there = DELETED in rows.column_names
    deleted = rows.column(DELETED) if is_there else pa.repeat(pa.scalar(False), rows.num_rows)
    return pa.Table.from_arrays([*columns, deleted], schema=schema.append(pa.field(DELETED, pa.bool_())))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
