"""`pyarrow.compute` expressions over batches: on Arrow batches, and with the same results on dict rows.

Arrow's own engine (Acero) computes them. It has some tens of microseconds of overhead for a batch. It alone
knows how an expression looks inside. The columns that it does not compute are not touched.

Rows become columns for it. Only columns whose name stands in the expression's text are converted: all that it
uses, and perhaps some more. Values beside them may be of any type. A column of rows has values of one Python
type (`to_arrow`), so a row's result never depends on the rows that came with it. A name that a dict does not
have is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.arrow_values import to_arrow
from penstock.runtime.record.elements import ArrowBatch, Batch

_MISSING: Final = re.compile(r"No match for FieldRef\.(?:Name|Nested|FieldPath)?\(?(.*?)\)? in ", re.DOTALL)
_NO_NAME: Final = "\0"
_MISSING_NAME: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\) in ", re.DOTALL)


class ExpressionError(PenstockError):
    """An expression can't be computed on a batch; the message has the expression and the columns."""


def compute(expressions: Mapping[str, pc.Expression], batch: Batch) -> list[pa.Array]:
    """The value of each expression in every row, in the order of the mapping.

    Raises:
        ExpressionError: A column is not there, has the wrong type, or a value fails (an overflow, a division
            by zero).

    Example:
        >>> batch = ArrowBatch(pa.record_batch({"v": [1, 2]}))
        >>> compute({"double": pc.field("v") * 2}, batch)[0].to_pylist()
        [2, 4]
    """
    if isinstance(batch, ArrowBatch):
        return _computed(expressions, batch.batch)
    columns = _columns_of(batch.rows, expressions)
    while True:
        try:
            return _computed(expressions, columns)
        except ExpressionError as error:
            missing = _MISSING_NAME.search(str(error.__cause__))
            if missing is None or missing[1] in columns.schema.names:
                raise
            columns = columns.append_column(missing[1], pa.nulls(columns.num_rows))


def _computed(expressions: Mapping[str, pc.Expression], columns: pa.RecordBatch) -> list[pa.Array]:
    # It loads `pyarrow.dataset`, and that loads pandas where it is installed: half a second in every process.
    from pyarrow import acero

    # A table without columns has no rows either.
    rows = columns if columns.num_columns else pa.record_batch([pa.nulls(columns.num_rows)], names=[_NO_NAME])
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))),
            acero.Declaration("project", acero.ProjectNodeOptions(list(expressions.values()))),
        ]
    )
    try:
        table = plan.to_table(use_threads=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ExpressionError(_explained(expressions, columns.schema, error)) from error
    return [_whole(column) for column in table.columns]


def columns_of_expression(expression: pc.Expression, schema: pa.Schema) -> tuple[str, ...] | None:
    """The columns that an expression looks at; `None` if it can't be computed on columns like these.

    Expressions can't be looked into. So it is computed without each of the columns: those whose lack is an
    error are the ones.

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
        >>> columns_of_expression(pc.field("c") > pc.field("a"), schema)
        ('a', 'c')
    """
    empty = pa.RecordBatch.from_pylist([], schema)
    if not _is_computable(expression, empty):
        return None
    names = dict.fromkeys(schema.names)
    return tuple(name for name in names if not _is_computable(expression, empty.drop_columns([name])))


def _is_computable(expression: pc.Expression, columns: pa.RecordBatch) -> bool:
    try:
        _computed({"": expression}, columns)
    except ExpressionError:
        return False
    return True


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _explained(expressions: Mapping[str, pc.Expression], schema: pa.Schema, error: BaseException) -> str:
    shown = ", ".join(short_repr(str(expression)).strip("'\"") for expression in expressions.values())
    missing = _MISSING.search(str(error))
    if missing is not None:
        return (
            f"the expression {shown} names the column {missing[1]!r}, and a batch has none: "
            f"it has {', '.join(map(repr, schema.names))}"
        )
    types = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return f"the expression {shown} can't be computed: {error}; the columns are {types}"


def _columns_of(rows: Sequence[Any], expressions: Mapping[str, pc.Expression]) -> pa.RecordBatch:
    text = " ".join(map(str, expressions.values()))
    names: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, dict):
            msg = (
                f"expressions need Arrow batches or rows that are dicts, and got {short_repr(row)} "
                f"of type {type(row).__name__}; use a function, or put a map before it"
            )
            raise PenstockError(msg)
        names.update(dict.fromkeys(row))
    used = [name for name in names if isinstance(name, str) and (name in text or "FieldPath" in text)]
    columns = {name: to_arrow([row.get(name) for row in rows], name) for name in used}
    return _batch(columns, len(rows))


def _batch(columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
