"""`filter`, `select`, `with_columns` and `split` with `pyarrow.compute` expressions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.column_expressions import ColumnExpressions
from penstock.runtime.operators.expressions import (
    as_mask,
    batch_of,
    required_fields_of,
    rows_where,
    shown,
)
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output, Tagged
from penstock.runtime.operators.row_expressions import RowExpressions
from penstock.runtime.record.column_key import only_column
from penstock.runtime.record.column_names import ColumnNames
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.record.row_columns import dicts_of_rows


class ExpressionOperator(Operator):
    batch_format: ClassVar[BatchFormats] = "both"

    #: Name of the operator in messages.
    kind: ClassVar[str] = "expression"

    def __init__(self, expressions: Mapping[str, pc.Expression], kept: Sequence[str] = ()) -> None:
        self._expressions = dict(expressions)
        self._on_columns = ColumnExpressions(expressions)
        self._on_rows = RowExpressions(expressions)
        fields = [path[0] for each in expressions.values() for path in required_fields_of(each)]
        advice = "For an optional field use pc.is_null, pc.is_valid or pc.coalesce in the expression"
        self._names = ColumnNames(self.kind, (*kept, *fields), advice)

    def open(self, context: OperatorContext) -> None:
        if context.is_restored:
            self._names.only_warn()

    @property
    def only_reads(self) -> bool:
        return True

    @property
    def doing(self) -> str:
        return f"{self.kind} {shown(self._expressions)}".rstrip()

    def _masks(self, batch: Batch) -> dict[str, pa.BooleanArray]:
        if not isinstance(batch, ArrowBatch):
            self._names.check(batch.rows)
            return self._on_rows.masks(batch.rows, self.kind)
        results = self._on_columns.compute(batch.batch)
        return {n: as_mask(result, self.kind) for n, result in zip(self._expressions, results, strict=True)}


class FilterExpressionOperator(ExpressionOperator):
    """Keeps the rows for which the expression is true, with their timestamps; null counts as false.

    Args:
        read: Columns that later steps read, `None` for all; Arrow batches lose all others.

    Example:
        >>> from penstock.runtime.record.elements import RowBatch
        >>> operator = FilterExpressionOperator(pc.field("v") > 1)
        >>> [batch.rows for batch in operator.process(RowBatch([{"v": 1}, {"v": 2}, {}]))]
        [[{'v': 2}]]
    """

    kind = "filter"

    def __init__(self, expression: pc.Expression, read: Collection[str] | None = None) -> None:
        super().__init__({"filter": expression})
        self._read = read

    def process(self, batch: Batch) -> Iterator[Output]:
        (mask,) = self._masks(batch).values()
        yield rows_where(self._narrow(batch), mask)

    def _narrow(self, batch: Batch) -> Batch:
        if self._read is None or not isinstance(batch, ArrowBatch):
            return batch
        names = batch.batch.schema.names
        kept = [index for index, name in enumerate(names) if name in self._read]
        # A batch without columns would lose its number of rows.
        return ArrowBatch(batch.batch.select(kept), batch.timestamps) if kept else batch


class SelectOperator(ExpressionOperator):
    """Replaces the columns of a batch; timestamps stay.

    Args:
        names: Columns that are kept unchanged; `None` for all.
        expressions: Computed columns by name. A computed column replaces a kept column of the same name.

    Example:
        >>> operator = SelectOperator(["k"], {"double": pc.field("v") * 2})
        >>> [batch.rows for batch in operator.process(RowBatch([{"k": "a", "v": 2}]))]
        [[{'k': 'a', 'double': 4}]]
    """

    def __init__(self, names: Sequence[str] | None, expressions: Mapping[str, pc.Expression]) -> None:
        self.kind = "with_columns" if names is None else "select"  # type: ignore[misc]
        super().__init__(expressions, names or ())
        self._kept = None if names is None else list(names)

    def process(self, batch: Batch) -> Iterator[Output]:
        yield self._of_columns(batch) if isinstance(batch, ArrowBatch) else self._of_rows(batch)

    def _of_columns(self, batch: ArrowBatch) -> ArrowBatch:
        results = self._on_columns.compute(batch.batch)
        computed = dict(zip(self._expressions, results, strict=True))
        schema = batch.batch.schema
        columns: dict[str, pa.Array] = {}
        fields: list[pa.Field] = []
        for name in schema.names if self._kept is None else self._kept:
            columns[name] = only_column(batch.batch, name)
            fields.append(schema.field(name))
        for name, column in computed.items():
            field = pa.field(name, column.type)
            if name in columns:
                fields[list(columns).index(name)] = field
            else:
                fields.append(field)
            columns[name] = column
        made = batch_of(columns, len(batch), pa.schema(fields, schema.metadata))
        return ArrowBatch(made, batch.timestamps)

    def _of_rows(self, batch: RowBatch) -> RowBatch:
        self._names.check(batch.rows)
        computed = self._on_rows.values(batch.rows, self.kind)
        additions = dicts_of_rows(list(computed), zip(*computed.values(), strict=True)) if computed else None
        kept = self._kept
        rows: Sequence[dict[str, Any]] = batch.rows
        if kept is not None:
            rows = [{name: row.get(name) for name in kept} for row in rows]
        if additions is not None:
            rows = [{**row, **added} for row, added in zip(rows, additions, strict=True)]
        return RowBatch(rows, batch.timestamps)


class SplitExpressionsOperator(ExpressionOperator):
    """Emits each row under the tag of the first expression that is true, otherwise on the main output.

    All expressions are computed over all rows. Null counts as false.

    Example:
        >>> from penstock.runtime.record.elements import RowBatch
        >>> operator = SplitExpressionsOperator({"large": pc.field("v") > 1})
        >>> for output in operator.process(RowBatch([{"v": 1}, {"v": 2}])):
        ...     print(output)
        Tagged(tag='large', batch=RowBatch(rows=[{'v': 2}], timestamps=None))
        RowBatch(rows=[{'v': 1}], timestamps=None)
    """

    kind = "split"

    def process(self, batch: Batch) -> Iterator[Output]:
        rest = None
        for tag, is_true in self._masks(batch).items():
            taken = is_true if rest is None else pc.and_(rest, is_true)
            rest = pc.invert(is_true) if rest is None else pc.and_not(rest, is_true)
            yield Tagged(tag, rows_where(batch, taken))
        assert rest is not None, "a split has at least one expression"
        yield rows_where(batch, rest)
