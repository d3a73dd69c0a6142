"""Parquet files: one split per row group, as rows (dicts) or as Arrow batches.

The position is a row count within the group. A restore decodes the group from its beginning and drops what
was already read, so row groups bound what is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.runtime.io.connectors.arrow_rows import rows_of_arrow
from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.connectors.formats.opening import open_listed
from penstock.runtime.io.connectors.formats.splitting import RowGroupSplit
from penstock.runtime.operators.protocols import Polled
from penstock.runtime.record.elements import ArrowBatch, RowBatch

if TYPE_CHECKING:
    import pyarrow.parquet as pq

RecordFormat: TypeAlias = Literal["rows", "arrow"]

#: Rows decoded at once.
DECODED_ROWS: Final = 16 * 1024

#: Arrow batches may be this much larger than asked for, as they cost nothing per row.
ARROW_FACTOR: Final = 4

#: Footers read side by side when a job starts.
_FOOTER_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """How Parquet files are read.

    Attributes:
        columns: Names of the wanted columns, `None` for all.
        record_format: `"rows"` or `"arrow"`.
    """

    columns: tuple[str, ...] | None
    record_format: RecordFormat

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[RowGroupSplit]:
        """One split for each row group that holds rows; reads the footers of all files."""
        with ThreadPoolExecutor(min(_FOOTER_THREADS, max(1, len(files)))) as pool:
            groups = pool.map(_row_groups, files, repeat(filesystem), repeat(self.columns))
            return [split for of_file in groups for split in of_file]

    def open(self, split: RowGroupSplit, filesystem: FileSystem) -> ParquetReader:
        """Open one row group."""
        handle = open_listed(filesystem, split.path, split.size)
        try:
            file = _parquet_file(handle, split.path)
            _check_columns(file, split.path, self.columns)
        except BaseException:
            handle.close()
            raise
        return ParquetReader(handle, file, split, self)


class ParquetReader:
    """Reads one row group.

    Args:
        handle: The open file; closed by `close`.
        file: Its footer, read.
        split: The row group and the position in it.
        form: How the file is read.
    """

    def __init__(
        self, handle: InputFile, file: pq.ParquetFile, split: RowGroupSplit, form: ParquetFormat
    ) -> None:
        self._handle = handle
        self._split = split
        self._format = form
        columns = None if form.columns is None else list(form.columns)
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(
            DECODED_ROWS, row_groups=[split.row_group], columns=columns
        )
        self._batch: pa.RecordBatch | None = None
        self._used = 0
        self._position = split.position
        self._to_drop = split.position

    def read(self, max_rows: int) -> Polled[Any]:
        """The next rows; `finished` at the end of the row group."""
        batch = self._decoded()
        if batch is None:
            return Polled(finished=True)
        arrow = self._format.record_format == "arrow"
        taken = batch.slice(self._used, ARROW_FACTOR * max_rows if arrow else max_rows)
        self._used += taken.num_rows
        self._position += taken.num_rows
        if arrow:
            return Polled(ArrowBatch(taken))
        return Polled(RowBatch(rows_of_arrow(taken)))

    def position(self) -> RowGroupSplit:
        """The split with how far it was read."""
        return replace(self._split, position=self._position)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _decoded(self) -> pa.RecordBatch | None:
        """The batch that holds the next row."""
        while self._batch is None or self._used >= self._batch.num_rows:
            try:
                batch = next(self._batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _damaged(self._split.path, error) from error
            if batch is None:
                return None
            dropped = min(self._to_drop, batch.num_rows)
            self._to_drop -= dropped
            self._batch, self._used = batch, dropped
        return self._batch


def _row_groups(info: FileInfo, filesystem: FileSystem, columns: Sequence[str] | None) -> list[RowGroupSplit]:
    handle = open_listed(filesystem, info.path, info.size)
    try:
        file = _parquet_file(handle, info.path)
        _check_columns(file, info.path, columns)
        return [
            RowGroupSplit(info.path, info.size, group)
            for group in range(file.metadata.num_row_groups)
            if file.metadata.row_group(group).num_rows
        ]
    finally:
        handle.close()


def _parquet_file(handle: InputFile, path: str) -> pq.ParquetFile:
    import pyarrow.parquet as pq  # slow to load, and not for sources of other formats

    try:
        return pq.ParquetFile(handle)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _check_columns(file: pq.ParquetFile, path: str, columns: Sequence[str] | None) -> None:
    there = file.schema_arrow.names
    missing = [name for name in columns or () if name.split(".", 1)[0] not in there]
    if missing:
        msg = f"{path}: there is no column {missing}; the file has {there}"
        raise ConnectorError(msg)


def _damaged(path: str, error: BaseException) -> ConnectorError:
    return ConnectorError(
        f"{path} can't be read as Parquet: {error}. Write the file again, or leave it out of the pattern"
    )
