"""`StagedRows`: a file of rows with keys, which the committer merges into a table.

The file lies among the data files of the table, but no snapshot ever names it. Its columns have the ids of
the table's columns. So the committer reads it like a data file, even if columns were renamed meanwhile. The
committer removes it after the merge. Files that no checkpoint covers stay, like data files without a commit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.io.connectors.iceberg.columns import arrow_columns
from penstock.runtime.io.connectors.iceberg.data_files import DataFileOutput
from penstock.runtime.io.connectors.iceberg.scanning import batches_of
from penstock.runtime.io.connectors.iceberg.writer import IcebergWriter
from penstock.runtime.io.connectors.tables.changes import DELETED
from penstock.runtime.io.connectors.tables.keys import last_of_each
from penstock.runtime.io.connectors.tables.parquet_file import OpenFile

if TYPE_CHECKING:
    from pyiceberg.table import Table

#: Id of the column that marks deletions; tables number their columns from 1.
_DELETED_ID: Final = 2_147_000_000
#: Id of a partition spec that no table has: staged rows have no partition.
_NO_SPEC: Final = -1


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A finished file of rows.

    Attributes:
        path: Location of the file.
        table: Id of the table whose columns the file has.
        spec: Id of the table's partition spec when the file was begun; rows are divided when they are merged.
        columns: Ids of its columns in the table.
    """

    path: str
    size: int
    rows: int
    table: str
    spec: int
    columns: tuple[int, ...]


class RowStagingWriter(IcebergWriter):
    """Stages rows with keys and deletions, in their order."""

    def check_named(self, schema: pa.Schema) -> None:
        super().check_named(schema)
        nested = next((name for name in self._sink.key if kinds.is_nested(schema.field(name).type)), None)
        if nested is not None:
            msg = (
                f"table {self.table}: column {nested!r} of key= has the type {schema.field(nested).type}. A "
                "key needs columns of numbers, text, bytes, dates or timestamps"
            )
            raise BadRecordError(msg)

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
        self.check_times(batch)  # a merge divides the rows, and comes too late to refuse them
        yield (), batch

    def begin(self, partition: tuple[Any, ...]) -> OpenFile:
        table = self._opened
        schema = arrow_columns(table.schema(), ids=True)
        if self._sink.change_kind is not None:
            # A deletion may have nothing but its key.
            mark = pa.field(DELETED, pa.bool_(), metadata={"PARQUET:field_id": str(_DELETED_ID)})
            schema = pa.schema([*(field.with_nullable(True) for field in schema), mark])
        path = table.location_provider().new_data_location(f"{self._prefix}-{uuid4().hex}-rows.parquet")
        return OpenFile(path, DataFileOutput(table.io, path), "zstd", schema)

    def staged(self, partition: tuple[Any, ...], file: OpenFile) -> Any:
        file.end()
        table = self._opened
        columns = tuple(field.field_id for field in table.schema().fields)
        return StagedRows(
            file.path, file.size, file.rows, str(table.metadata.table_uuid), table.spec().spec_id, columns
        )


def rows_of(
    client: TableClient, table: Table, files: Sequence[StagedRows], key: Sequence[str]
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Read staged rows with the columns of a table.

    Returns:
        The last row of each key, and whether each of them deletes the row of its key.

    Raises:
        ConnectorError: The table has no such key, or a file can't be read.
    """
    _check_key(client, table, key, files)
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.typedef import Record
    from pyiceberg.types import BooleanType, NestedField

    # Deletions have null outside the key. The writers have checked the other rows for null.
    fields = [field.model_copy(update={"required": False}) for field in table.schema().fields]
    wanted = Schema(*fields, NestedField(_DELETED_ID, DELETED, BooleanType(), required=False))
    parts = [arrow_columns(wanted).empty_table()]
    for file in files:
        described = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=file.rows,
            file_size_in_bytes=file.size,
        )
        described.spec_id = _NO_SPEC
        batches = batches_of(table.metadata, table.io, FileScanTask(described), wanted)
        parts += [pa.Table.from_batches([batch]) for batch in client.each("read staged rows", batches)]
    rows = last_of_each(pa.concat_tables(parts), key)
    return rows.drop_columns([DELETED]), pc.fill_null(rows.column(DELETED), False)


def _check_key(client: TableClient, table: Table, key: Sequence[str], files: Sequence[StagedRows]) -> None:
    names = [field.name for field in table.schema().fields]
    missing = next((name for name in key if name not in names), None)
    if missing is not None:
        msg = (
            f"table {client.identifier} has no column {missing!r}, which is part of the key of its rows; it "
            f"has {', '.join(names)}. Give the column its name again, or restore an older checkpoint"
        )
        raise ConnectorError(msg)
    for name in key:
        number = table.schema().find_field(name).field_id
        if any(number not in file.columns for file in files):
            msg = (
                f"table {client.identifier}: column {name!r} is part of the key of rows that a completed "
                "checkpoint covers. It was dropped and added again since, so its old values are lost. "
                "Restore an older checkpoint"
            )
            raise ConnectorError(msg)
