"""Rows for which an expression is true."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.operators.expressions.expressions import ExpressionError
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch


def as_mask(result: pa.Array, kind: str) -> pa.BooleanArray:
    """The result of an expression as true or false a row; null counts as false.

    Args:
        kind: How the message calls the operator.

    Raises:
        ExpressionError: The expression is of another type.

    Example:
        >>> as_mask(pa.array([True, None]), "filter").to_pylist()
        [True, False]
    """
    if kinds.is_null(result.type):
        result = result.cast(pa.bool_())
    if not kinds.is_boolean(result.type):
        msg = f"the expression is of type {result.type}; {kind} needs one that is true or false"
        raise ExpressionError(msg)
    return result.fill_null(False) if result.null_count else result


def rows_where(batch: Batch, mask: pa.BooleanArray) -> Batch:
    """The rows of a batch for which a mask is true, with their timestamps.

    Args:
        mask: As long as the batch.

    Example:
        >>> rows_where(RowBatch(["a", "b"], [1, 2]), pa.array([False, True]))
        RowBatch(rows=['b'], timestamps=[2])
    """
    if isinstance(batch, ArrowBatch):
        return batch.filter(mask)
    places = pc.indices_nonzero(mask).to_pylist()
    rows, stamps = batch.rows, batch.timestamps
    kept = [rows[place] for place in places]
    return RowBatch(kept, None if stamps is None else [stamps[place] for place in places])
