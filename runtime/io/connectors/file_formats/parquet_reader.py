"""Parquet files: one split per row group, as rows (dicts) or as Arrow batches.

The position is a row count within the group. A restore decodes the group from its beginning and drops the
rows already read, so row groups bound the repeated work.

Arrow batches of one source have one schema: the same names in the same order with the same types. All columns
are nullable, and a file's metadata is left out. So batches of several files can be combined. The footers of
all files are compared when the job starts, before any row is read.

**Skipped data**: columns that no step reads, and row groups without wanted rows.

*Row groups.* Arrow simplifies an expression under the guarantee of a row group's statistics: each value lies
between the minimum and the maximum, or is null. But statistics ignore NaN, and so does Arrow. `v != 3`
excludes a row group whose minimum and maximum are 3, even when it holds NaN. So a separate check per float
column of the expression determines whether NaN in this column can make the expression true. A row group is
skipped if Arrow excludes it by the statistics, and no NaN in these columns can make the expression true.

Statistics do not distinguish 0.0 and -0.0, but `is_in` does. Arrow treats a column of only zeros as -0.0. So
with `is_in` such a row group is read if either zero can make the expression true.

The decision is made when a row group is opened, not when the splits are listed. A job that starts from a
savepoint may have another filter than before, and so need other row groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.arrow_batches import (
    MOST_ARROW_ROWS,
    PathColumns,
    ReadAhead,
    arrow_rows,
    check_one_schema,
    rows_of_arrow,
)
from penstock.runtime.io.connectors.errors import BadRecordError, UnreadableInputError
from penstock.runtime.io.connectors.file_formats.splitting import RowGroupSplit, open_listed
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.operators.expressions import columns_of_expression
from penstock.runtime.operators.needed_columns import columns_to_read
from penstock.runtime.operators.source import NeededColumns, Polled
from penstock.runtime.record.arrow_types import has_leaf
from penstock.runtime.record.elements import ArrowBatch, BatchFormat, RowBatch

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def may_match(handle: InputFile, row_group: int, schema: pa.Schema, wanted: pc.Expression) -> bool:
    """Whether a row group may hold wanted rows; moves the file's position."""
    used = columns_of_expression(wanted, schema)
    if used is None or any(_may_be_nan(schema.field(name), schema, wanted) for name in used):
        return True
    import pyarrow.dataset as arrow_dataset  # slow to load, and only for sources with a filter

    handle.seek(0)
    fragment = arrow_dataset.ParquetFileFormat().make_fragment(handle, row_groups=[row_group])
    try:
        if fragment.split_by_row_group(wanted):
            return True
    except pa.ArrowInvalid:  # a bound of the statistics does not fit the expression's type; values may fit
        return True
    if not any(lookup in str(wanted) for lookup in ("is_in(", "index_in(")):
        return False
    statistics = fragment.row_groups[0].statistics or {}
    return any(
        statistics.get(name, {}).get("min") == 0 == statistics[name]["max"]
        and _may_be_zero(schema.field(name), schema, wanted)
        for name in used
    )


def _may_be_nan(field: pa.Field, schema: pa.Schema, wanted: pc.Expression) -> bool:
    """Whether the expression may be true for a row that has NaN in this column."""
    kind = field.type
    if kinds.is_float64(kind) or kinds.is_float32(kind):
        return _is_satisfiable(wanted, pc.field(field.name) == pa.scalar(float("nan"), kind), schema)
    return has_leaf(kind, kinds.is_floating)


def _may_be_zero(field: pa.Field, schema: pa.Schema, wanted: pc.Expression) -> bool:
    """Whether the expression may be true for a row that has a zero of either sign in this column."""
    return kinds.is_floating(field.type) and any(
        _is_satisfiable(wanted, pc.field(field.name) == pa.scalar(zero, field.type), schema)
        for zero in (0.0, -0.0)
    )


def _is_satisfiable(wanted: pc.Expression, guarantee: pc.Expression, schema: pa.Schema) -> bool:
    """Whether Arrow can't exclude `wanted` where `guarantee` is true.

    Asks a data set, which skips files whose guarantee excludes a filter. Its only file is never opened.
    """
    import pyarrow.dataset as arrow_dataset
    import pyarrow.fs as arrow_fs

    form, system = arrow_dataset.ParquetFileFormat(), arrow_fs.LocalFileSystem()
    file = form.make_fragment("unopened", filesystem=system, partition_expression=guarantee)
    files = arrow_dataset.FileSystemDataset([file], schema, form, system)
    try:
        return bool(list(files.get_fragments(filter=wanted)))
    except pa.ArrowException:  # evaluation fails, such as a division by zero: reading the rows reports it
        return True


#: Rows decoded together for a source of rows.
DECODED_ROWS: Final = 16 * 1024

#: Approximate maximum of bytes decoded together for a source of Arrow batches.
DECODED_BYTES: Final = 16 * 1024 * 1024

#: Footers read in parallel when a job starts.
_FOOTER_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """The Parquet format of a source.

    Attributes:
        columns: Names of the wanted columns, `None` for all.
        wanted: A `pyarrow.compute` expression on the columns that are read; rows without a match are dropped.
        needed: Columns that later steps need; the rest may be left out.
        path_columns: Columns encoded in the path, which a file may lack.
    """

    columns: tuple[str, ...] | None
    batch_format: BatchFormat
    wanted: Any = field(default=None, compare=False)
    needed: NeededColumns = field(default_factory=NeededColumns)
    path_columns: PathColumns | None = None

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[RowGroupSplit]:
        with ThreadPoolExecutor(min(_FOOTER_THREADS, max(1, len(files)))) as pool:
            found = list(pool.map(_footer, files, repeat(filesystem), repeat(self)))
        check_one_schema(
            (info.path, schema) for info, (schema, _) in zip(files, found, strict=True) if schema is not None
        )
        return [split for _, splits in found for split in splits]

    def open(self, split: RowGroupSplit, filesystem: FileSystem) -> ParquetReader:
        handle = open_listed(filesystem, split.path, split.size)
        try:
            file = _parquet_file(handle, split.path)
            form = self.of_file(file)
            _check_columns(file, split.path, form.columns)
            has_rows = self._has_rows(handle, file, split)
            return ParquetReader(handle, file, split, form.pruned(file), has_rows, self._outer(file))
        except BaseException:
            handle.close()
            raise

    def _outer(self, file: pq.ParquetFile) -> list[str] | None:
        """Return the wanted columns; struct members are replaced by the struct's name."""
        if self.columns is None or self.path_columns is None:
            return None
        there = {*file.schema_arrow.names, *self.path_columns.names}
        return _outer_names(self.columns, there)

    def of_file(self, file: pq.ParquetFile) -> ParquetFormat:
        """Return the format of one file, without the columns found only in its path."""
        if self.path_columns is None or self.columns is None:
            return self
        return replace(self, columns=self.path_columns.in_file(self.columns, file.schema_arrow.names))

    def pruned(self, file: pq.ParquetFile) -> ParquetFormat:
        if self.path_columns is None:
            return replace(self, columns=columns_to_read(file.schema_arrow, self.columns, self.needed))
        there = file.schema_arrow
        only = [field for field in self.path_columns.row.schema if field.name not in there.names]
        columns = None if self.columns is None else (*self.columns, *(field.name for field in only))
        found = columns_to_read(pa.schema([*there, *only]), columns, self.needed)
        if found is None:
            return self
        in_file = self.path_columns.in_file(found, there.names)
        # Without a column of the file the number of rows would be unknown.
        return replace(self, columns=in_file or self.columns or (there.names[0],))

    def _has_rows(self, handle: InputFile, file: pq.ParquetFile, split: RowGroupSplit) -> bool:
        filters = [wanted for wanted in (self.wanted, self.needed.wanted) if wanted is not None]
        return all(may_match(handle, split.row_group, file.schema_arrow, wanted) for wanted in filters)


class ParquetReader:
    """Reads one row group; `close` closes the file.

    Args:
        has_rows: Whether any row of the group may be wanted.
        columns: Names that the user wants, including path columns; `None` for all.
    """

    def __init__(
        self,
        handle: InputFile,
        file: pq.ParquetFile,
        split: RowGroupSplit,
        form: ParquetFormat,
        has_rows: bool = True,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._handle = handle
        self._split = split
        self._format = form
        self._wanted = form.wanted
        self._schema = _schema_of(file, split.path, form)
        self._columns = columns
        columns = None if form.columns is None else list(form.columns)
        rows = _decoded_rows(file, split.row_group, form)
        groups = [split.row_group] if has_rows else []
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(rows, row_groups=groups, columns=columns)
        self._ahead: ReadAhead | None = None
        whole = file.metadata.row_group(split.row_group).num_rows if has_rows else 0
        if form.batch_format == "arrow" and whole > rows:
            self._batches = self._ahead = ReadAhead(self._batches)
        self._batch: pa.RecordBatch | None = None
        self._used = 0
        self._position = split.position
        self._to_drop = split.position

    def read(self, max_rows: int) -> Polled[Any]:
        batch = self._decoded()
        if batch is None:
            return Polled(finished=True)
        arrow = self._schema is not None
        taken = batch.slice(self._used, arrow_rows(max_rows) if arrow else max_rows)
        self._used += taken.num_rows
        self._position += taken.num_rows
        if self._wanted is not None:
            taken = _filtered(taken, self._wanted, self._split.path)
            if not taken.num_rows:
                return Polled()
        if arrow:
            return Polled(ArrowBatch(taken))
        try:
            return Polled(RowBatch(rows_of_arrow(taken)))
        except BadRecordError as error:
            before = self._position - taken.num_rows
            msg = f"{self._split.path}, row group {self._split.row_group}, after row {before}: {error}"
            raise UnreadableInputError(msg) from error

    def position(self) -> RowGroupSplit:
        return replace(self._split, position=self._position)

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self._handle.close()

    def _decoded(self) -> pa.RecordBatch | None:
        while self._batch is None or self._used >= self._batch.num_rows:
            try:
                batch = next(self._batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(self._split.path, error) from error
            if batch is None:
                return None
            dropped = min(self._to_drop, batch.num_rows)
            self._to_drop -= dropped
            self._batch, self._used = self._shaped(batch), dropped
        return self._batch

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._schema is not None:
            columns = [batch.column(name) for name in self._schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        path = self._format.path_columns
        return batch if path is None else path.added_to(batch, self._columns)


def _footer(
    info: FileInfo, filesystem: FileSystem, form: ParquetFormat
) -> tuple[pa.Schema | None, list[RowGroupSplit]]:
    """Read a footer: the schema of the file's Arrow batches (`None` for a row source), and its splits."""
    handle = open_listed(filesystem, info.path, info.size)
    try:
        file = _parquet_file(handle, info.path)
        wanted_columns, form = form.columns, form.of_file(file)
        _check_columns(file, info.path, form.columns)
        if form.wanted is not None:
            empty = file.read_row_groups([], columns=form.columns and list(form.columns))
            if form.path_columns is not None:
                rows = pa.RecordBatch.from_pylist([], empty.schema)
                empty = form.path_columns.added_to(rows, wanted_columns)
            _filtered(empty, form.wanted, info.path)
        splits = [
            RowGroupSplit(info.path, info.size, group)
            for group in range(file.metadata.num_row_groups)
            if file.metadata.row_group(group).num_rows
        ]
        return _schema_of(file, info.path, form), splits
    finally:
        handle.close()


def _filtered(rows: Any, wanted: Any, path: str) -> Any:
    try:
        return rows.filter(wanted)
    except pa.ArrowException as error:
        msg = (
            f"{path}: the filter {wanted} does not fit the columns {rows.schema.to_string()!r}: {error}. A "
            "filter names columns that the source reads, and compares them with values of their type"
        )
        raise ConnectorError(msg) from error


def _schema_of(file: pq.ParquetFile, path: str, form: ParquetFormat) -> pa.Schema | None:
    """Return the schema of a file's Arrow batches: the wanted columns in their order, all nullable."""
    if form.batch_format == "rows":
        return None
    there: pa.Schema = file.schema_arrow
    if form.columns is not None:
        # Struct members may be wanted; only the reader can extract them.
        columns = list(form.columns)
        found: pa.Schema = file.read_row_groups([], columns=columns).schema
        there = pa.schema([found.field(name) for name in _outer_names(columns, there.names)])
    return pa.schema([pa.field(field.name, field.type) for field in there])


def _outer_names(columns: Iterable[str], there: Container[str]) -> list[str]:
    """Return the columns; struct members are replaced by the struct's name."""
    return list(dict.fromkeys(name if name in there else name.split(".", 1)[0] for name in columns))


def _decoded_rows(file: pq.ParquetFile, row_group: int, form: ParquetFormat) -> int:
    if form.batch_format == "rows":
        return DECODED_ROWS
    group = file.metadata.row_group(row_group)
    row_bytes: int = max(1, group.total_byte_size // max(1, group.num_rows))
    return max(1, min(MOST_ARROW_ROWS, DECODED_BYTES // row_bytes))


def _parquet_file(handle: InputFile, path: str) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # slow to load, and not for sources of other formats

    try:
        return pq.ParquetFile(handle)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _check_columns(file: pq.ParquetFile, path: str, columns: Sequence[str] | None) -> None:
    there = file.schema_arrow.names
    missing = [name for name in columns or () if not {name, name.split(".", 1)[0]} & set(there)]
    if missing:
        msg = f"{path}: the file lacks {missing}; it has {there}"
        raise ConnectorError(msg)
    counts = Counter(there)
    twice = sorted({name for name in (there if columns is None else columns) if counts[name] > 1})
    if twice:
        msg = (
            f"{path}: the file has several columns called {twice}. Give each its own name, or choose other "
            "columns with columns=[...]"
        )
        raise ConnectorError(msg)


def _damaged(path: str, error: BaseException) -> UnreadableInputError:
    return UnreadableInputError(
        f"{path} can't be read as Parquet: {error}. Write the file again, or leave it out of the pattern"
    )
