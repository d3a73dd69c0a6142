"""Arrow batches of connectors: their sizes, their rows as dicts, one schema, and columns of file paths.

`ReadAhead` decodes the next batch in a thread while the current one is processed. Decoding releases the GIL.
So with a free processor a source reads nearly twice as fast, unless the subtask waits for something else.
At most one batch is decoded ahead, so memory is bounded. The batches and their order are the same as
without `ReadAhead`. An error in decoding is raised when its batch is requested.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import shown
from penstock.runtime.io.formats.rows import rows_of as rows_of
from penstock.runtime.io.formats.rows import rows_of_arrow as rows_of_arrow

#: Minimum rows of an Arrow batch while the job keeps up.
ARROW_ROWS: Final = 64 * 1024

#: Maximum rows of an Arrow batch, for a job that takes less than 10 ms for them.
MOST_ARROW_ROWS: Final = 256 * 1024

#: Maximum rows that the task requests at a time from a source that returns lists.
MOST_ASKED: Final = 4_096

#: Ratio of the rows of an Arrow batch to the requested rows, while the job is slow.
_SLOW_FACTOR: Final = 4


def arrow_rows(max_rows: int) -> int:
    """Return the number of rows in the next Arrow batch.

    `max_rows` is the number that the job processes in ten milliseconds. With fewer than `MOST_ASKED` the job
    is slow. It gets small batches, so that no batch delays a barrier for long. A batch has a fixed cost of
    about a millisecond, so a fast job gets very large batches.

    Example:
        >>> arrow_rows(10), arrow_rows(4_096), arrow_rows(200_000)
        (40, 65536, 200000)
    """
    if max_rows < MOST_ASKED:
        return _SLOW_FACTOR * max_rows
    return max(ARROW_ROWS, min(max_rows, MOST_ARROW_ROWS))


_SEPARATE: str = "or read these files with a separate source and unify them with map_batches"


def check_one_schema(schemas: Iterable[tuple[str, pa.Schema]]) -> None:
    """Refuse files whose columns differ from the first file's in name, type or order."""
    first: tuple[str, pa.Schema] | None = None
    for path, schema in schemas:
        if first is None:
            first = (path, schema)
        elif schema is not first[1] and not schema.equals(first[1]):
            raise ConnectorError(_difference(path, schema, *first))


def _difference(path: str, schema: pa.Schema, known: str, expected: pa.Schema) -> str:
    for name in expected.names:
        if name not in schema.names:
            return (
                f"{path}: there is no column {name!r}, which {known} has; the file has "
                f"{shown(schema.names)}. Give columns=[...] with the columns that all files have, {_SEPARATE}"
            )
        kind, wanted = schema.field(name).type, expected.field(name).type
        if kind != wanted:
            return (
                f"{path}: column {name!r} is of type {kind}, but of type {wanted} in {known}. Write the "
                f"files with one type, {_SEPARATE}"
            )
    more = [name for name in schema.names if name not in expected.names]
    if more:
        return (
            f"{path}: column {more[0]!r} of type {schema.field(more[0]).type} is not in {known}. Give "
            f"columns=[...] with the columns that all files have, {_SEPARATE}"
        )
    return (
        f"{path}: the columns are in the order {shown(schema.names)}, but in the order "
        f"{shown(expected.names)} in {known}. Give columns=[...] in the order that you want"
    )


@dataclass(frozen=True, slots=True)
class PathColumns:
    """The columns of one file's path, as a batch of one row. A column of the file itself takes precedence.

    Example:
        >>> year = PathColumns(pa.record_batch({"year": [2020]}))
        >>> year.added_to(pa.record_batch({"n": [1, 2]}), None).to_pylist()
        [{'n': 1, 'year': 2020}, {'n': 2, 'year': 2020}]
        >>> year.added_to_rows([{"n": 1}, {"year": 2019}], None)
        [{'n': 1, 'year': 2020}, {'year': 2019}]
    """

    row: pa.RecordBatch

    @property
    def names(self) -> list[str]:
        names: list[str] = self.row.schema.names
        return names

    def in_file(self, names: Iterable[str], there: Container[str]) -> tuple[str, ...]:
        """The columns among `names` that come from the file, because it has them or the path lacks them."""
        return tuple(name for name in names if name in there or name not in self.names)

    def added_to(self, batch: pa.RecordBatch, wanted: Sequence[str] | None) -> pa.RecordBatch:
        """Add these columns to a batch; `wanted` selects and orders the result's columns, if given."""
        names, columns = list(batch.schema.names), list(batch.columns)
        for name, values in zip(self.names, self.row.columns, strict=True):
            if name not in names and (wanted is None or name in wanted):
                columns.append(pa.repeat(values[0], batch.num_rows))
                names.append(name)
        fields = [*batch.schema, *(self.row.schema.field(name) for name in names[batch.num_columns :])]
        found = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return found if wanted is None else found.select([name for name in wanted if name in names])

    def filled_into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch in which the path's values replace the nulls of the path's columns."""
        for name, values in zip(self.names, self.row.columns, strict=True):
            at = batch.schema.get_field_index(name)
            if at >= 0:
                column = batch.column(at)
                batch = batch.set_column(
                    at, batch.schema.field(at), column.fill_null(values[0].cast(column.type))
                )
        return batch

    def added_to_rows(self, rows: Sequence[dict[str, Any]], wanted: Sequence[str] | None) -> list[Any]:
        """Dicts with these columns added; `wanted` as in `added_to`."""
        (constants,) = rows_of_arrow(self.row)
        if wanted is None:
            return [
                {**row, **{name: constants[name] for name in constants if name not in row}} for row in rows
            ]
        return [{name: row[name] if name in row else constants[name] for name in wanted} for row in rows]


class ReadAhead(Iterator[pa.RecordBatch]):
    """Reads an iterator one batch ahead in its own thread; no other thread may call the iterator."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._coming: Future[pa.RecordBatch | None] = self._thread.submit(next, batches, None)

    def __next__(self) -> pa.RecordBatch:
        batch = self._coming.result()
        if batch is None:
            raise StopIteration
        self._coming = self._thread.submit(next, self._batches, None)
        return batch

    def close(self) -> None:
        """Wait for the batch that is being decoded, and end the thread."""
        self._thread.shutdown(cancel_futures=True)
