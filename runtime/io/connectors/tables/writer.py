"""`StagingTableWriter`: the writer of one subtask of a table's sink, whatever the format of the table.

It converts records to the columns of the table, divides them by partition and stages Parquet files. The first
records fix the columns if neither the sink nor the table does. A format says where a file goes, and what the
committer needs to know of a finished one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.file_formats.fixed_schema import FixedSchema, refuse_odd_rows
from penstock.runtime.io.connectors.tables.changes import DELETED, without_change_kind
from penstock.runtime.io.connectors.tables.nulls import excludes_null, null_in
from penstock.runtime.io.connectors.tables.parquet_file import OpenFile
from penstock.runtime.record.arrow_types import NoColumnTypeError
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.record.own_types import batches_of_rows

#: Approximate number of bytes that all open files of a subtask buffer together.
_GROUP_BYTES: Final = 64 * 1024 * 1024
#: Maximum number of files that one subtask has open.
_MOST_OPEN: Final = 100


def check_compaction(compact_below: int | None, compact_at: int) -> None:
    """Check the settings of a sink that compacts.

    Raises:
        ConfigurationError: One of them is less than 1.
    """
    for name, size in (("compact_at", compact_at), ("compact_below", compact_below)):
        if size is not None and size < 1:
            msg = f"{name}={size} is not allowed: give at least 1"
            raise ConfigurationError(msg)


class StagingTableWriter(ABC):
    """Writes the files of one subtask; a file that reaches its target size is ended early.

    Attributes:
        table: Path or name of the table, for errors.
        schema: Columns of the table; `None` until they are known.
    """

    def __init__(
        self,
        table: str,
        *,
        partition_by: Sequence[str] = (),
        key: Sequence[str] = (),
        adds_columns: bool = False,
        change_kind: str | None = None,
        target_file_size: int,
    ) -> None:
        self.table = table
        self.target_file_size = target_file_size
        self.schema: pa.Schema | None = None
        self._named = {"partition_by": partition_by, "key": key}
        self._adds_columns = adds_columns
        self._open: dict[Hashable, OpenFile] = {}
        self._staged: list[Any] = []
        self._change_kind = change_kind
        self._fixed: FixedSchema | None = None
        self._never_null: list[pa.Field] = []

    @abstractmethod
    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
        """Divide a batch by partition; the partition decides the file of its rows."""

    @abstractmethod
    def begin(self, partition: Any) -> OpenFile:
        """Begin a file of a partition."""

    @abstractmethod
    def staged(self, partition: Any, file: OpenFile) -> Any:
        """End a file; return what the committer needs to know of it."""

    @abstractmethod
    def first_schema(self, found: pa.Schema) -> pa.Schema:
        """The columns of the table; `found` has the columns of the first records."""

    @abstractmethod
    def added_to(self, known: pa.Schema, new: Sequence[pa.Field]) -> pa.Schema:
        """The columns of the table with new ones, if the sink adds columns."""

    def write(self, batch: Batch) -> None:
        if not len(batch):
            return
        try:
            for partition, part in self.parts(self.columns_of(batch)):
                self._write(partition, part)
        except OSError as error:
            raise self._unwritable(error) from error

    def prepare_commit(self) -> Sequence[Any]:
        try:
            self.end_files()
        except OSError as error:
            raise self._unwritable(error) from error
        staged, self._staged = self._staged, []
        return staged

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].discard()

    def columns_of(self, batch: Batch) -> pa.RecordBatch:
        """Convert a batch to the columns of the table; of changes, a further column marks the deletions."""
        if self._change_kind is None:
            return self._converted(batch, None)
        batch, deletes = without_change_kind(batch, self._change_kind, self.table)
        return self._converted(batch, deletes).append_column(DELETED, deletes)

    def _converted(self, batch: Batch, exempt: pa.Array | None) -> pa.RecordBatch:
        """Convert a batch; rows that `exempt` marks may lack all values but their key."""
        if isinstance(batch, ArrowBatch):
            self._learn(batch.batch.schema)
            return self._checked(self._fix_of(batch.batch), exempt)
        rows = batch.rows
        if self._fixed is None or (self._adds_columns and self._has_new_names(rows)):
            refuse_odd_rows(rows)
            try:
                for each in batches_of_rows(rows):
                    self._learn(each.schema)
            except NoColumnTypeError as error:
                msg = f"a row can't be written to table {self.table}: {error}. Give the sink a schema="
                raise BadRecordError(msg) from error
        assert self._fixed is not None, "the rows have a schema"
        return self._checked(self._fixed.converted(rows), exempt)

    def fix(self, schema: pa.Schema) -> None:
        """Set the columns of all records from now on."""
        self.check_named(schema)
        advice = (
            f"Map the rows to the columns of table {self.table} before the sink, or let the sink add "
            'columns with schema_mode="merge"'
        )
        self.schema = schema
        fields = [field.with_nullable(field.nullable or self._change_kind is not None) for field in schema]
        self._fixed = FixedSchema(pa.schema(fields), advice)
        self._never_null = [field for field in schema if excludes_null(field)]

    def check_named(self, schema: pa.Schema) -> None:
        """Refuse columns without those that settings of the sink name."""
        for setting, names in self._named.items():
            missing = [name for name in names if name not in schema.names]
            if missing:
                msg = (
                    f"table {self.table}: {setting} names {missing[0]!r}, which is not among the columns "
                    f"{', '.join(schema.names)}"
                )
                raise BadRecordError(msg)

    def _write(self, partition: Hashable, part: pa.RecordBatch) -> None:
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._end(next(iter(self._open)))
            file = self.begin(partition)
        self._open[partition] = file  # the most recently written file is the last one
        file.write(part, min(self.target_file_size, _GROUP_BYTES // len(self._open)))
        if file.size >= self.target_file_size:
            self._end(partition)

    def _end(self, partition: Hashable) -> None:
        self._staged.append(self.staged(partition, self._open.pop(partition)))

    def end_files(self) -> None:
        """End all open files, so that further rows begin new ones."""
        for partition in list(self._open):
            self._end(partition)

    def _checked(self, batch: pa.RecordBatch, exempt: pa.Array | None) -> pa.RecordBatch:
        for name in self._named["key"]:
            if batch.column(name).null_count:
                msg = (
                    f"table {self.table}: column {name!r} of key= is null in a record, so no row can be "
                    "found by it. Filter out these records, or give them a value before the sink"
                )
                raise BadRecordError(msg)
        kept = batch if exempt is None or not self._never_null else batch.filter(pc.invert(exempt))
        for field in self._never_null:
            found = null_in(kept.column(field.name), field)
            if found is not None:
                msg = (
                    f"table {self.table}: column {found!r} is NOT NULL, but a record has no value. "
                    "Filter out these records, or give them a value before the sink"
                )
                raise BadRecordError(msg)
        return batch

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
            self.fix(self.first_schema(found))
        known = self.schema
        assert known is not None, "it was fixed"
        new = [field.with_nullable(True) for field in found if field.name not in known.names]
        if new and self._adds_columns:
            self.end_files()  # a file has one schema
            self.fix(self.added_to(known, new))

    def _unwritable(self, error: OSError) -> ConnectorError:
        return ConnectorError(
            f"a file of table {self.table} can't be written: {error}. Check the free space and the "
            "permissions"
        )
