"""Turns an Arrow batch into rows: a list of dicts with plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.record.elements import Batch, RowBatch

#: Older ones make an object of every value on the way, and numpy is several times as fast.
_LISTS_ARE_FAST: Final = int(pa.__version__.partition(".")[0]) >= 26


def rows_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row, from column name to value.

    Raises:
        BadRecordError: Python has no value for one of them; the message names the column.

    Example:
        >>> rows_of_arrow(pa.record_batch({"a": [1, 2], "b": ["x", None]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)]
    names = batch.schema.names
    columns = [_readable(name, column) for name, column in zip(names, batch.columns, strict=True)]
    return [dict(zip(names, values, strict=False)) for values in zip(*columns, strict=True)]


def rows_of(batch: Batch) -> Sequence[Any]:
    """The rows of any batch."""
    return batch.rows if isinstance(batch, RowBatch) else rows_of_arrow(batch.batch)


def _readable(name: str, column: pa.Array) -> list[Any]:
    try:
        return _values(column)
    except (OverflowError, ValueError) as error:
        msg = (
            f"column '{name}' of type {column.type} holds what Python has no value for ({error}): its dates "
            "and times are of the years 1 to 9999, in the zone of the column, and of whole microseconds. "
            "Take Arrow batches instead of rows, or cast the column before"
        )
        raise BadRecordError(msg) from error


def _values(column: pa.Array) -> list[Any]:
    if _LISTS_ARE_FAST:
        # `to_numpy` would import pandas where that is installed: half a second in every process.
        return column.to_pylist()  # type: ignore[no-any-return]
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if text or (number and not column.null_count):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]
