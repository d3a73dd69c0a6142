"""`PathColumns`: columns whose values stand in the path of a file, the same for all of its rows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.runtime.io.connectors.arrow_rows import rows_of_arrow


@dataclass(frozen=True, slots=True)
class PathColumns:
    """The columns of one file's path, as a batch of one row.

    A column that the file has itself keeps the file's values.

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
        """Their names."""
        names: list[str] = self.row.schema.names
        return names

    def in_file(self, names: Iterable[str], there: Container[str]) -> tuple[str, ...]:
        """Those of some names that the file must have itself, as it does or as no other place has them."""
        return tuple(name for name in names if name in there or name not in self.names)

    def added_to(self, batch: pa.RecordBatch, wanted: Sequence[str] | None) -> pa.RecordBatch:
        """A batch with these columns.

        Args:
            batch: Rows of the file.
            wanted: Names of the columns of the result, in their order; `None` for all.
        """
        names, columns = list(batch.schema.names), list(batch.columns)
        for name, values in zip(self.names, self.row.columns, strict=True):
            if name not in names and (wanted is None or name in wanted):
                columns.append(pa.repeat(values[0], batch.num_rows))
                names.append(name)
        fields = [*batch.schema, *(self.row.schema.field(name) for name in names[batch.num_columns :])]
        found = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return found if wanted is None else found.select([name for name in wanted if name in names])

    def filled_into(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in which columns of these names have the values of the path instead of nulls."""
        for name, values in zip(self.names, self.row.columns, strict=True):
            at = batch.schema.get_field_index(name)
            if at >= 0:
                column = batch.column(at)
                batch = batch.set_column(
                    at, batch.schema.field(at), column.fill_null(values[0].cast(column.type))
                )
        return batch

    def added_to_rows(self, rows: Sequence[dict[str, Any]], wanted: Sequence[str] | None) -> list[Any]:
        """Dicts with these columns; `wanted` as in `added_to`."""
        (constants,) = rows_of_arrow(self.row)
        if wanted is None:
            return [
                {**row, **{name: constants[name] for name in constants if name not in row}} for row in rows
            ]
        return [{name: row[name] if name in row else constants[name] for name in wanted} for row in rows]
