"""`OpenFile`: a Parquet file of a table that is being written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.io.connectors.file_formats.encoders import CountingOutput
from penstock.runtime.io.connectors.filesystem import OutputFile

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: Rows that a file collects before it writes them as a row group.
_GROUP_ROWS: Final = 128 * 1024


class OpenFile:
    """A file that is being written.

    Attributes:
        path: Path of the file, as its table will name it.
        rows: Number of rows written.
        with_nan: Columns that contain NaN.
    """

    def __init__(
        self, path: str, output: OutputFile, compression: str, schema: pa.Schema | None = None
    ) -> None:
        """Begin a file.

        Args:
            output: The file; `end` and `discard` close it.
            schema: Schema of the file; by default the schema of the first rows. It may have metadata that the
                rows' schema lacks.
        """
        self.path = path
        self.rows = 0
        self.with_nan: set[str] = set()
        self._compression = compression
        self._schema = schema
        self._output = output
        self._counting = CountingOutput(self._output)
        self._writer: pq.ParquetWriter | None = None
        self._found: list[Any] = []
        self._parts: list[pa.RecordBatch] = []
        self._gathered = 0
        self._gathered_bytes = 0

    @property
    def size(self) -> int:
        return self._counting.size

    def write(self, batch: pa.RecordBatch, most_bytes: int) -> None:
        """Collect rows; write a row group once there are 131,072 rows or `most_bytes` bytes."""
        self._parts.append(batch)
        self.rows += batch.num_rows
        self._gathered += batch.num_rows
        self._gathered_bytes += batch.nbytes
        if self._gathered >= _GROUP_ROWS or self._gathered_bytes >= most_bytes:
            self._write_group()

    def end(self) -> pq.FileMetaData:
        """Finish the file, and return its metadata."""
        self._write_group()
        assert self._writer is not None, "a file has rows"
        self._writer.close()
        self._output.finish()
        metadata: pq.FileMetaData = self._found[0]
        return metadata

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
                self._schema or parts[0].schema,
                compression=self._compression,
                store_schema=False,
                # Dictionaries of numbers cost two thirds of the time, and seldom save bytes.
                use_dictionary=[field.name for field in parts[0].schema if _has_dictionary(field.type)],
                metadata_collector=self._found,
            )
        table = pa.Table.from_batches(parts)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if kinds.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                self.with_nan.add(name)
        self._writer.write_table(table, row_group_size=max(_GROUP_ROWS, table.num_rows))


def _has_dictionary(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_binary(kind))
