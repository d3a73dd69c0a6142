"""Writes Parquet: rows that are dicts, or Arrow batches, all with one schema.

Rows are gathered into row groups. Without a given schema the first group (or the first Arrow batch) decides
it. A later value that does not fit unchanged is an error, because readers of a folder expect one schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.formats.encoder import CountingOutput
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.record.exact_casts import exact_batch
from penstock.runtime.record.exact_values import MisfitError, exact_column

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: Rows of a row group.
GROUP_ROWS: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ParquetSinkFormat:
    """How Parquet is written.

    Attributes:
        schema: The schema; `None` infers it from the first rows.
        compression: Codec as pyarrow names it.
    """

    schema: pa.Schema | None = None
    compression: str = "snappy"

    @property
    def extension(self) -> str:
        """Of its files."""
        return "parquet"

    def encoder(self) -> ParquetEncoder:
        """Make the encoder of one writer."""
        return ParquetEncoder(self.schema, self.compression)


class ParquetEncoder:
    """Encodes batches into row groups.

    Args:
        schema: The schema, or `None`.
        compression: Codec as pyarrow names it.
    """

    def __init__(self, schema: pa.Schema | None, compression: str) -> None:
        self._schema = schema
        self._rounds = schema is not None
        self._compression = compression
        self._output: CountingOutput | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._batched_rows = 0

    def begin(self, output: CountingOutput) -> None:
        """Begin a file."""
        self._output, self._writer = output, None

    def write(self, batch: Batch) -> None:
        """Gather rows; a full group is written."""
        if isinstance(batch, ArrowBatch):
            self._gather_rows()
            self._add(self._fitted(batch.batch))
        else:
            self._rows.extend(batch.rows)
        if self._batched_rows + len(self._rows) >= GROUP_ROWS:
            self._write_group()

    def end(self) -> None:
        """Write the last group and the footer."""
        self._write_group()
        if self._writer is not None:
            self._writer.close()
        self._output = self._writer = None

    def _write_group(self) -> None:
        self._gather_rows()
        if not self._batches or self._output is None:
            return
        if self._writer is None:
            import pyarrow.parquet as pq  # slow to load, and not for sinks of other formats

            self._writer = pq.ParquetWriter(self._output, self._schema, compression=self._compression)
        table = pa.Table.from_batches(self._batches, self._schema)
        self._writer.write_table(table, row_group_size=max(GROUP_ROWS, table.num_rows))
        self._batches, self._batched_rows = [], 0

    def _gather_rows(self) -> None:
        if self._rows:
            self._add(self._converted(self._rows))
            self._rows = []

    def _add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._batched_rows += batch.num_rows

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._schema is None:
            self._schema = batch.schema
        if batch.schema.equals(self._schema):
            return batch
        if set(batch.schema.names) != set(self._schema.names):
            raise BadRecordError(self._misfit(f"an Arrow batch has columns {batch.schema.names}"))
        try:
            return exact_batch(batch, self._schema)
        except (MisfitError, pa.ArrowException) as error:
            raise BadRecordError(self._misfit(f"an Arrow batch can't be cast: {error}")) from error

    def _converted(self, rows: Sequence[Any]) -> pa.RecordBatch:
        odd = next((row for row in rows if not isinstance(row, Mapping)), None)
        if odd is not None:
            msg = (
                f"a row of type {type(odd).__name__} can't be written as Parquet: rows are dicts from column "
                f"name to value; the row is {shown(odd)}. Map the rows before the sink"
            )
            raise BadRecordError(msg)
        names = list(dict.fromkeys(chain.from_iterable(rows)))
        if self._schema is not None:
            unknown = [name for name in names if name not in self._schema.names]
            if unknown:
                row = next(row for row in rows if unknown[0] in row)
                raise BadRecordError(self._misfit(f"a row has columns {unknown}; the row is {shown(row)}"))
            names = self._schema.names
        columns = [self._column(name, rows) for name in names]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema or _schema_of(names, columns))
        self._schema = batch.schema
        return batch

    def _column(self, name: str, rows: Sequence[Any]) -> pa.Array:
        kind = None if self._schema is None else self._schema.field(name).type
        values = [row.get(name) for row in rows]
        try:
            return exact_column(values, kind, name, rounds=self._rounds)
        except MisfitError as error:
            row = _first_misfit(name, rows, kind)
            what = f"{error}; one of the rows is {shown(row)}"
            raise BadRecordError(self._misfit(what)) from error

    def _misfit(self, what: str) -> str:
        known = "" if self._schema is None else f" {shown(str(self._schema))}"
        return (
            f"{what}, which does not fit the Parquet schema{known} of this sink. Give FileSink.parquet the "
            "schema= that all rows have, or map the rows before the sink"
        )


def _schema_of(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Schema:
    return pa.schema([(name, column.type) for name, column in zip(names, columns, strict=True)])


def _first_misfit(name: str, rows: Sequence[Any], kind: pa.DataType | None) -> Any:
    """The first row whose value does not go together with those before it."""
    for row in rows:
        try:
            value = exact_column([row.get(name)], kind, name)
        except MisfitError:
            return row
        if kind is None and value.type != pa.null():
            kind = value.type
    return rows[0]
