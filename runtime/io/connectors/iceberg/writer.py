"""`IcebergWriter`: writes the Parquet files of one subtask to their final place in a table.

A table consists of the files that its snapshots name, so a file that no snapshot names is invisible. Names
contain a random number, so no file is ever overwritten. Files that no snapshot ever names stay after a
failure, as do those of other writers; Spark's `remove_orphan_files` removes them.

Readers find the columns of a file by the ids of its fields. So new columns are added to the table *before*
their first file is written. This makes no row visible, and adding the same columns again changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.iceberg.catalogs import TableClient
from penstock.runtime.io.connectors.iceberg.columns import PartitionColumn, arrow_columns, check_partition
from penstock.runtime.io.connectors.iceberg.data_files import DataFileOutput, staged
from penstock.runtime.io.connectors.tables.parquet_file import OpenFile
from penstock.runtime.io.connectors.tables.types import table_schema
from penstock.runtime.io.connectors.tables.writer import StagingTableWriter

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.runtime.io.connectors.iceberg.sink import IcebergSink

_ROW: Final = "row"
#: Microseconds of a day.
_DAY: Final = 86_400_000_000
#: The first day of Python's calendar and the day after its last, in days since 1970.
_FIRST_DAY: Final = date.min.toordinal() - date(1970, 1, 1).toordinal()
_END: Final = date.max.toordinal() - date(1970, 1, 1).toordinal() + 1
#: Newest format version that pyiceberg writes. It refuses newer ones only at the commit.
_NEWEST_FORMAT: Final = 2


class IcebergWriter(StagingTableWriter):
    def __init__(
        self, sink: IcebergSink, client: TableClient, prefix: str, table: Table | None = None
    ) -> None:
        """Make a writer.

        Args:
            table: State of the table that determines the files' columns and partitions. By default the newest
                state; a missing table is created if its columns are known.
        """
        # The table decides the size of files once it is known.
        super().__init__(
            sink.table,
            key=sink.key if table is None else (),  # existing rows need not fit the sink's key
            adds_columns=sink.adds_columns,
            change_kind=sink.change_kind if table is None else None,
            target_file_size=1,
        )
        self._sink = sink
        self._client = client
        self._prefix = prefix
        self._table: Table | None = None
        self._file_schema: pa.Schema | None = None
        self._owns_client = table is None
        if table is not None:  # settings were checked before a checkpoint covered the rows
            self.fix(self._take(table))
        elif sink.schema is not None:
            self.fix(self.first_schema(sink.schema))
        elif (table := client.find()) is not None:
            self.fix(self._use(table))

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
        table = self._opened
        if table.spec().is_unpartitioned():
            yield (), batch
            return
        self.check_times(batch)
        from pyiceberg.partitioning import partition_record_value

        schema, fields = table.schema(), table.spec().fields
        names = [str(place) for place in range(len(fields))]
        columns = []
        for each in fields:
            kind = schema.find_field(each.source_id).field_type
            values = _column(batch, schema.find_column_name(each.source_id) or "")
            columns.append(each.transform.pyarrow_transform(kind)(values))
        rows = pa.array(range(batch.num_rows), pa.int64())
        keys = pa.Table.from_arrays([*columns, rows], names=[*names, _ROW])
        groups = keys.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
        for group in groups.to_batches():
            for place in range(group.num_rows):
                values = [
                    partition_record_value(each, group.column(name)[place].as_py(), schema)
                    for each, name in zip(fields, names, strict=True)
                ]
                # NaN objects are unequal, so each would get a partition and a file of its own.
                values = [math.nan if value != value else value for value in values]
                yield tuple(values), batch.take(group.column(f"{_ROW}_list")[place].values)

    def check_times(self, batch: pa.RecordBatch) -> None:
        """Refuse times of partitions that pyiceberg can't name, because Python's calendar lacks them."""
        schema = self._opened.schema()
        for each in self._opened.spec().fields:
            name = schema.find_column_name(each.source_id)
            if name is None:
                continue
            values = _column(batch, name)
            if not (kinds.is_date(values.type) or kinds.is_timestamp(values.type)):
                continue
            days = values.cast(pa.int32() if kinds.is_date(values.type) else pa.int64())
            unit = 1 if kinds.is_date(values.type) else _DAY
            found = pc.min_max(days).as_py()
            if (
                found["min"] is not None
                and not _FIRST_DAY * unit <= found["min"] <= found["max"] < _END * unit
            ):
                msg = (
                    f"table {self.table}: column {name!r} has a time before the year 1 or after the year "
                    "9999, by which pyiceberg can't divide rows. Filter out these records before the sink, "
                    "or partition the table by another column"
                )
                raise BadRecordError(msg)

    def begin(self, partition: tuple[Any, ...]) -> OpenFile:
        from pyiceberg.typedef import Record

        table = self._opened
        name = f"{self._prefix}-{uuid4().hex}.parquet"
        spec = table.spec()
        if not spec.is_unpartitioned():
            name = f"{spec.partition_to_path(Record(*partition), table.schema())}/{name}"
        path = table.location_provider().new_data_location(name)
        codec = table.properties.get("write.parquet.compression-codec", "zstd")
        codec = "none" if codec == "uncompressed" else codec
        return OpenFile(path, DataFileOutput(table.io, path), codec, self._file_schema)

    def staged(self, partition: tuple[Any, ...], file: OpenFile) -> Any:
        return staged(file, self._opened, partition)

    def close(self) -> None:
        super().close()
        if self._owns_client:
            self._client.close()

    def first_schema(self, found: pa.Schema) -> pa.Schema:
        """The columns of the table; creates it with the columns of the first records if it does not exist."""
        sink = self._sink
        table = self._client.find()
        if table is None:
            columns = [PartitionColumn.of(text) for text in sink.partition_by]
            fields = table_schema(found)
            if sink.schema is None:
                # Later records may have nulls in columns that have none in the first records.
                fields = pa.schema([field.with_nullable(True) for field in fields])
            missing = [each.source for each in columns if each.source not in fields.names]
            if missing:
                msg = (
                    f"table {sink.table}: partition_by names {missing[0]!r}, which is not among the columns "
                    f"{', '.join(fields.names)}"
                )
                raise BadRecordError(msg)
            self.check_named(fields)
            table = self._client.make(fields, columns, sink.properties)
        known = self._use(table)
        new = [field for field in sink.schema or () if field.name not in known.names]
        return self.added_to(known, new) if new else known

    def added_to(self, known: pa.Schema, new: Sequence[pa.Field]) -> pa.Schema:
        lower = {name.lower(): name for name in known.names}
        twin = next((field.name for field in new if field.name.lower() in lower), None)
        if twin is not None:
            msg = (
                f"table {self.table}: columns {lower[twin.lower()]!r} and {twin!r} differ only in upper and "
                "lower case, which most readers don't tell apart. Rename one of them before the sink"
            )
            raise BadRecordError(msg)
        fields = table_schema(pa.schema([field.with_nullable(True) for field in new]))

        def add(table: Table) -> pa.Schema | None:
            left = [field for field in fields if field.name not in table.schema().column_names]
            if not left:
                return self._use(table)
            self._client.call("add columns", lambda: _add(table, pa.schema(left)))
            return None

        return self._client.change(add)

    def _use(self, table: Table) -> pa.Schema:
        check_table(self._sink, table)
        return self._take(table)

    def _take(self, table: Table) -> pa.Schema:
        self._table = table
        self.target_file_size = target_file_size(table)
        self._file_schema = arrow_columns(table.schema(), ids=True)
        return arrow_columns(table.schema())

    @property
    def _opened(self) -> Table:
        assert self._table is not None, "the records have a schema, so there is a table"
        return self._table


def target_file_size(table: Table) -> int:
    return int(table.properties.get("write.target-file-size-bytes", 512 * 1024 * 1024))


def check_table(sink: IcebergSink, table: Table) -> None:
    """Refuse a table that can't take the records of a sink.

    Raises:
        ConnectorError: The table has another format version or partitioning, or the branch is a tag.
        BadRecordError: The table lacks columns of `schema`.
    """
    if table.format_version < 2:
        msg = (
            f"table {sink.table} has format version 1, whose snapshots have no sequence numbers. Upgrade it "
            "with the table property format-version=2"
        )
        raise ConnectorError(msg)
    if table.format_version > _NEWEST_FORMAT:
        msg = (
            f"table {sink.table} has format version {table.format_version}, but pyiceberg writes no version "
            f"after {_NEWEST_FORMAT}. Write to a table with the property format-version={_NEWEST_FORMAT}"
        )
        raise ConnectorError(msg)
    ref = table.refs().get(sink.branch)
    if ref is not None and ref.snapshot_ref_type.value != "branch":
        msg = f"table {sink.table}: branch={sink.branch!r} is a tag, which never changes: give another name"
        raise ConnectorError(msg)
    check_partition(sink.table, table, [PartitionColumn.of(text) for text in sink.partition_by])
    new = [field.name for field in sink.schema or () if field.name not in table.schema().column_names]
    if new and not sink.adds_columns:
        msg = (
            f"table {sink.table} lacks the columns {', '.join(new)} of schema=. Leave them out, or let the "
            "sink add "
            'columns with schema_mode="merge"'
        )
        raise BadRecordError(msg)


def _add(table: Table, fields: pa.Schema) -> None:
    with table.update_schema() as update:
        update.union_by_name(fields)


def _column(batch: pa.RecordBatch, path: str) -> pa.Array:
    """A column of a batch, or a field of a struct column."""
    if path in batch.schema.names:
        return batch.column(path)
    first, *rest = path.split(".")
    return pc.struct_field(batch.column(first), rest)
