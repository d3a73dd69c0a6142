"""`select(...)` and `with_columns(...)`: other columns, computed by expressions or as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.expressions.expression_operator import ExpressionOperator
from penstock.runtime.operators.expressions.expressions import ExpressionError, compute
from penstock.runtime.operators.operator import Output
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.arrow_dicts import dicts_of_arrow
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
        computed = compute(self._expressions, batch) if self._expressions else []
        self._records_out += len(batch)
        by_name = dict(zip(self._expressions, computed, strict=True))
        yield (
            self._of_columns(batch, by_name)
            if isinstance(batch, ArrowBatch)
            else self._of_rows(batch, by_name)
        )

    def _of_columns(self, batch: ArrowBatch, computed: Mapping[str, pa.Array]) -> ArrowBatch:
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

    def _of_rows(self, batch: RowBatch, computed: Mapping[str, pa.Array]) -> RowBatch:
        if not computed:
            additions: Sequence[dict[str, Any]] = [{}] * len(batch)
        else:
            names = list(computed)
            additions = dicts_of_arrow(pa.RecordBatch.from_arrays(list(computed.values()), names=names))
        kept = self._names
        try:
            if kept is None:
                rows = [{**row, **added} for row, added in zip(batch.rows, additions, strict=True)]
            else:
                rows = [
                    {**{name: row.get(name) for name in kept}, **added}
                    for row, added in zip(batch.rows, additions, strict=True)
                ]
        except (TypeError, AttributeError):
            self._refuse_others(batch.rows)
            raise
        return RowBatch(rows, batch.timestamps)

    def _refuse_others(self, rows: Sequence[Any]) -> None:
        for row in rows:
            if not isinstance(row, dict):
                msg = (
                    f"{self.kind} needs Arrow batches or rows that are dicts, and got {short_repr(row)} "
                    f"of type {type(row).__name__}; put a map before it"
                )
                raise ExpressionError(msg)


def _record_batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
