"""`pyarrow.compute` expressions over Arrow batches.

Arrow's own engine (Acero) computes them. It has some tens of microseconds of overhead for a batch. It alone
knows how an expression looks inside. The columns that it does not compute are not touched. `row_expressions`
does the same for rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.expressions.expression_fields import fields_of
from penstock.runtime.operators.user_code.failure import short_repr

_MISSING: Final = re.compile(r"No match for FieldRef\.(?:Name|Nested|FieldPath)?\(?(.*?)\)? in ", re.DOTALL)
_NO_NAME: Final = "\0"


class ExpressionError(PenstockError):
    """An expression can't be computed on a batch; the message has the expression and the columns."""


def compute(expressions: Mapping[str, pc.Expression], columns: pa.RecordBatch) -> list[pa.Array]:
    """The value of each expression in every row, in the order of the mapping.

    Raises:
        ExpressionError: A column is not there, has the wrong type, or a value fails (an overflow, a division
            by zero).

    Example:
        >>> compute({"double": pc.field("v") * 2}, pa.record_batch({"v": [1, 2]}))[0].to_pylist()
        [2, 4]
    """
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

    Example:
        >>> schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "c": pa.int64()})
        >>> columns_of_expression(pc.field("c") > pc.field("a"), schema)
        ('a', 'c')
    """
    fields = fields_of(expression)
    if fields is None or not _is_computable(expression, pa.RecordBatch.from_pylist([], schema)):
        return None
    used = {path[0] for path in fields}
    return tuple(name for name in dict.fromkeys(schema.names) if name in used)


def _is_computable(expression: pc.Expression, columns: pa.RecordBatch) -> bool:
    try:
        compute({"": expression}, columns)
    except ExpressionError:
        return False
    return True


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _explained(expressions: Mapping[str, pc.Expression], schema: pa.Schema, error: BaseException) -> str:
    shown = ", ".join(short_repr(str(expression))[1:-1] for expression in expressions.values())
    missing = _MISSING.search(str(error))
    if missing is not None:
        return (
            f"the expression {shown} names the column {missing[1]!r}, and a batch has none: "
            f"it has {', '.join(map(repr, schema.names))}"
        )
    types = ", ".join(f"{field.name}: {field.type}" for field in schema)
    return f"the expression {shown} can't be computed: {error}; the columns are {types}"
