"""`DeltaWriter`: writes the Parquet files of one subtask into the folder of a table.

A Delta table consists of the files that its log names. So a file that no commit names is invisible, in its
final place and with its final name. `prepare_commit` ends the open files and returns a `StagedFile` for each.
The committer puts them into the log. Names contain a random number, so no file is ever overwritten.

Files that no commit ever names stay after a failure. A full VACUUM removes them, as those of other writers.
No job removes them, because they look like files that only older versions of the table name. Rows
with a key are staged in a folder that readers ignore, since they are merged into the table. Files there
belong to no version, so the next attempt removes those of earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.delta.changes import DELETED, without_change_kind
from penstock.runtime.io.connectors.delta.statistics import file_statistics
from penstock.runtime.io.connectors.delta.tables import arrow_schema_of, delta_schema, find_table
from penstock.runtime.io.connectors.delta.writable import check_partitioned, excludes_null, null_in
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.file_formats.encoders import CountingOutput
from penstock.runtime.io.connectors.file_formats.fixed_schema import FixedSchema, refuse_odd_rows
from penstock.runtime.io.connectors.files.file_sink_writer import file_safe
from penstock.runtime.io.connectors.files.folders import NULL, Folders
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.record.arrow_types import NoColumnTypeError
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.record.own_types import batches_of_rows

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from penstock.runtime.io.connectors.delta.sink import DeltaSink

#: Folder in the table for rows that are merged into it; readers ignore it.
STAGING: Final = "_penstock"
#: Rows that a file collects before it writes them as a row group.
_GROUP_ROWS: Final = 128 * 1024
#: Bytes that all open files of a subtask collect together, about.
_GROUP_BYTES: Final = 64 * 1024 * 1024
#: Maximum number of files that one subtask has open.
_MOST_OPEN: Final = 100


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file that no commit names yet.

    Attributes:
        path: Path in the table's folder.
        partition: Value of each partition column as text; `None` for null.
        written_at: Milliseconds since the epoch.
        statistics: JSON with the number of rows, and the bounds and nulls of columns.
        schema: Serialized Arrow schema of the table's rows, with the partition columns.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    written_at: int
    statistics: str
    schema: bytes


def staged_prefix(job_id: str, operator_id: str) -> str:
    """The beginning of the names of all files that an operator stages; subtask and attempt follow."""
    return f"{job_id}-{file_safe(operator_id)}-"


def attempt_of(name: str, prefix: str) -> int | None:
    """The attempt that has staged a file; `None` for files of others."""
    found = re.fullmatch(rf"part-{re.escape(prefix)}[0-9]+-([0-9]+)-[0-9a-f]{{32}}\..+", name)
    return None if found is None else int(found[1])


class _OpenFile:
    """A file that is being written."""

    def __init__(self, system: FileSystem, directory: str, folder: str, name: str, compression: str) -> None:
        self.path = f"{folder}/{name}" if folder else name
        self.folder = folder
        self.rows = 0
        self._compression = compression
        self._output = system.create(f"{directory}/{folder}" if folder else directory, name)
        self._counting = CountingOutput(self._output)
        self._writer: pq.ParquetWriter | None = None
        self._found: list[Any] = []
        self._parts: list[pa.RecordBatch] = []
        self._gathered = 0
        self._gathered_bytes = 0
        self._with_nan: set[str] = set()

    @property
    def size(self) -> int:
        return self._counting.size

    def write(self, batch: pa.RecordBatch, most_bytes: int) -> None:
        """Collect rows; write them as a row group once there are many of them, or `most_bytes`."""
        self._parts.append(batch)
        self.rows += batch.num_rows
        self._gathered += batch.num_rows
        self._gathered_bytes += batch.nbytes
        if self._gathered >= _GROUP_ROWS or self._gathered_bytes >= most_bytes:
            self._write_group()

    def end(self) -> str:
        """Finish the file, and return its statistics."""
        self._write_group()
        assert self._writer is not None, "a file has rows"
        self._writer.close()
        self._output.finish()
        return file_statistics(self._found[0], self._with_nan)

    def discard(self) -> None:
        self._output.discard()

    def _write_group(self) -> None:
        parts, self._parts = self._parts, []
        self._gathered = self._gathered_bytes = 0
        if not parts:
            return
        import pyarrow.parquet as pq  # slow to load

        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._counting,
                parts[0].schema,
                compression=self._compression,
                store_schema=False,
                # Dictionaries of numbers cost two thirds of the time, and seldom save bytes.
                use_dictionary=[field.name for field in parts[0].schema if _has_dictionary(field.type)],
                metadata_collector=self._found,
            )
        table = pa.Table.from_batches(parts)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if kinds.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(name)
        self._writer.write_table(table, row_group_size=max(_GROUP_ROWS, table.num_rows))


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_binary(kind))


class DeltaWriter:
    """Writes the files of one subtask; a file that reaches `target_file_size` is ended early."""

    def __init__(self, sink: DeltaSink, system: FileSystem, prefix: str, clock: Any) -> None:
        self._sink = sink
        self._system = system
        self._prefix = prefix
        self._clock = clock
        #: Rows with a key are staged elsewhere, because they are merged into the table.
        self._base = STAGING if sink.key else ""
        self._folders = Folders(() if sink.key else sink.partition_by)
        self._open: dict[str, _OpenFile] = {}
        self._made: set[str] = set()
        self._staged: list[StagedFile] = []
        self._fixed: FixedSchema | None = None
        self._schema = pa.schema([])
        self._never_null: list[pa.Field] = []
        known = sink.schema or self._schema_of_table()
        if known is not None:
            self._fix(known)

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        deletes = None
        if self._sink.change_kind is not None:
            batch, deletes = without_change_kind(batch, self._sink.change_kind, str(self._sink.path))
        try:
            for columns in self._fitted(batch, deletes):
                for folder, part in self._folders.split(ArrowBatch(columns)):
                    assert isinstance(part, ArrowBatch), "Folders keeps the kind of a batch"
                    self._write(self._base or folder, part.batch)
        except OSError as error:
            raise self._unwritable(error) from error

    def prepare_commit(self) -> Sequence[StagedFile]:
        try:
            self._end_all()
        except OSError as error:
            raise self._unwritable(error) from error
        staged, self._staged = self._staged, []
        return staged

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].discard()

    def _write(self, folder: str, part: pa.RecordBatch) -> None:
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._end(next(iter(self._open.values())))
            file = self._begin(folder)
        self._open[folder] = file  # the most recently written file is the last one
        file.write(part, min(self._sink.target_file_size, _GROUP_BYTES // len(self._open)))
        if file.size >= self._sink.target_file_size:
            self._end(file)

    def _begin(self, folder: str) -> _OpenFile:
        assert self._fixed is not None, "the records have a schema"
        for name, value in _values("" if self._base else folder).items():
            if value is None and not self._fixed.schema.field(name).nullable:
                msg = (
                    f"table {self._sink.path}: partition column '{name}' is NOT NULL, and it is empty in a "
                    "record. The empty text becomes null. Give these records a value before the sink"
                )
                raise BadRecordError(msg)
        if folder not in self._made:
            place = f"{self._sink.path}/{folder}" if folder else str(self._sink.path)
            self._system.make_directory(place, f"_probe-{uuid4()}")
            self._made.add(folder)
        name = f"part-{self._prefix}-{uuid4().hex}.{self._sink.compression}.parquet"
        return _OpenFile(self._system, str(self._sink.path), folder, name, self._sink.compression)

    def _end(self, file: _OpenFile) -> None:
        del self._open[file.folder]
        assert self._fixed is not None, "a file has rows, so its schema is known"
        statistics = file.end()
        schema = self._schema.serialize().to_pybytes()
        now = int(self._clock.now() * 1_000)
        values = {} if self._base else _values(file.folder)
        self._staged.append(StagedFile(file.path, file.size, file.rows, values, now, statistics, schema))

    def _end_all(self) -> None:
        for file in list(self._open.values()):
            self._end(file)

    def _fitted(self, batch: Batch, deletes: pa.Array | None) -> Iterator[pa.RecordBatch]:
        """The batch in the columns of the table, and in one that marks deletions."""
        if isinstance(batch, ArrowBatch):
            self._learn(batch.batch.schema)
            yield self._checked(self._fix_of(batch.batch), deletes)
            return
        rows = batch.rows
        if self._fixed is None or (self._sink.adds_columns and self._has_new_names(rows)):
            refuse_odd_rows(rows)
            try:
                for each in batches_of_rows(rows):
                    self._learn(each.schema)
            except NoColumnTypeError as error:
                msg = f"a row can't be written to table {self._sink.path}: {error}. Give the sink a schema="
                raise BadRecordError(msg) from error
        assert self._fixed is not None, "the rows have a schema"
        yield self._checked(self._fixed.converted(rows), deletes)

    def _checked(self, batch: pa.RecordBatch, deletes: pa.Array | None) -> pa.RecordBatch:
        for name in self._sink.key:
            if batch.column(name).null_count:
                msg = (
                    f"table {self._sink.path}: column {name!r} of key= is null in a record, so no row can be "
                    "found by it. Filter these records, or give them a value before the sink"
                )
                raise BadRecordError(msg)
        kept = batch if deletes is None or not self._never_null else batch.filter(pc.invert(deletes))
        for field in self._never_null:
            found = null_in(kept.column(field.name), field)
            if found is not None:
                msg = (
                    f"table {self._sink.path}: column {found!r} is NOT NULL, and a record has no value. "
                    "Filter these records, or give them a value before the sink"
                )
                raise BadRecordError(msg)
        return batch if deletes is None else batch.append_column(DELETED, deletes)

    def _fix_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._fixed is not None, "the batch has a schema"
        missing = [field for field in self._fixed.schema if field.name not in batch.schema.names]
        for field in missing:
            if field.nullable:
                batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return self._fixed.fitted(batch)

    def _has_new_names(self, rows: Sequence[Any]) -> bool:
        assert self._fixed is not None, "the schema is known"
        known = set(self._fixed.schema.names)
        return any(isinstance(row, Mapping) and not known.issuperset(row) for row in rows)

    def _learn(self, found: pa.Schema) -> None:
        """Fix the schema by the first rows; later, add their new columns if the sink may."""
        if self._fixed is None:
            self._fix(self._schema_of_table() or found)
        assert self._fixed is not None, "it was fixed"
        known = self._fixed.schema
        new = [field.with_nullable(True) for field in found if field.name not in known.names]
        if new and self._sink.adds_columns:
            self._end_all()  # a file has one schema
            self._fix(pa.schema([*known, *new]))

    def _fix(self, schema: pa.Schema) -> None:
        for setting in ("partition_by", "key"):
            missing = [name for name in getattr(self._sink, setting) if name not in schema.names]
            if missing:
                msg = (
                    f"table {self._sink.path}: {setting} has {missing[0]!r}, which is none of the columns "
                    f"{', '.join(schema.names)}"
                )
                raise BadRecordError(msg)
        check_partitioned(str(self._sink.path), schema, self._sink.partition_by)
        advice = (
            f"Map the rows to the columns of table {self._sink.path} before the sink, or let the sink add "
            'columns with schema_mode="merge"'
        )
        self._schema = delta_schema(schema)
        # A deletion may have nothing but its key, so null is looked for in the other rows.
        may_delete = self._sink.change_kind is not None
        fields = [field.with_nullable(field.nullable or may_delete) for field in self._schema]
        self._fixed = FixedSchema(pa.schema(fields), advice)
        self._never_null = [field for field in self._schema if excludes_null(field)]

    def _schema_of_table(self) -> pa.Schema | None:
        table = find_table(str(self._sink.path), self._sink.storage_options)
        return None if table is None else arrow_schema_of(table)

    def _unwritable(self, error: OSError) -> ConnectorError:
        return ConnectorError(
            f"a file of table {self._sink.path} can't be written: {error}. Check the free space and the "
            "permissions"
        )


def _values(folder: str) -> dict[str, str | None]:
    """The values of the partition columns in a folder's path.

    Example:
        >>> _values("day=1%2F5/city=__HIVE_DEFAULT_PARTITION__")
        {'day': '1/5', 'city': None}
    """
    found: dict[str, str | None] = {}
    for part in folder.split("/") if folder else ():
        name, _, value = part.partition("=")
        text = unquote(value)
        found[unquote(name)] = None if text == NULL else text
    return found
