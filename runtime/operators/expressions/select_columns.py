"""`select(...)` and `with_columns(...)`: other columns, computed by expressions or as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.expressions.expression_operator import ExpressionOperator
from penstock.runtime.operators.expressions.expressions import ExpressionError, compute
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.arrow_dicts import dicts_of_lists
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch


class SelectOperator(ExpressionOperator):
    """Replaces the columns of a batch; timestamps stay.

    Args:
        names: Columns that are kept as they are; `None` for all.
        expressions: Columns that are computed, by name. One of a kept name takes its place, others follow.

    Example:
        >>> operator = SelectOperator(["k"], {"double": pc.field("v") * 2})
        >>> [batch.rows for batch in operator.process(RowBatch([{"k": "a", "v": 2}]))]
        [[{'k': 'a', 'double': 4}]]
    """

    def __init__(self, names: Sequence[str] | None, expressions: Mapping[str, pc.Expression]) -> None:
        super().__init__(expressions)
        self._names = None if names is None else list(names)
        self.kind = "with_columns" if names is None else "select"  # type: ignore[misc]

    def process(self, batch: Batch) -> Iterator[Output]:
        """Replace the columns of a batch."""
        self._records_in += len(batch)
        if not len(batch):
            return
        self._records_out += len(batch)
        yield self._of_columns(batch) if isinstance(batch, ArrowBatch) else self._of_rows(batch)

    def _of_columns(self, batch: ArrowBatch) -> ArrowBatch:
        results = compute(self._expressions, batch.batch) if self._expressions else []
        computed = dict(zip(self._expressions, results, strict=True))
        schema = batch.batch.schema
        columns: dict[str, pa.Array] = {}
        fields: list[pa.Field] = []
        for name in schema.names if self._names is None else self._names:
            places = schema.get_all_field_indices(name)
            if len(places) != 1:
                what = "several columns" if places else "no column"
                msg = f"a batch has {what} {name!r}: it has {', '.join(map(repr, schema.names))}"
                raise ExpressionError(msg)
            columns[name] = batch.batch.column(places[0])
            fields.append(schema.field(places[0]))
        for name, column in computed.items():
            field = pa.field(name, column.type)
            if name in columns:
                fields[list(columns).index(name)] = field
            else:
                fields.append(field)
            columns[name] = column
        made = pa.schema(fields, schema.metadata)
        return ArrowBatch(_record_batch(list(columns.values()), made, len(batch)), batch.timestamps)

    def _of_rows(self, batch: RowBatch) -> RowBatch:
        computed = self._on_rows.values(batch.rows, self.kind)
        additions = dicts_of_lists(list(computed), list(computed.values())) if computed else None
        kept = self._names
        rows: Sequence[dict[str, Any]] = batch.rows
        if kept is not None:
            rows = [{name: row.get(name) for name in kept} for row in rows]
        if additions is not None:
            rows = [{**row, **added} for row, added in zip(rows, additions, strict=True)]
        return RowBatch(rows, batch.timestamps)


def _record_batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
