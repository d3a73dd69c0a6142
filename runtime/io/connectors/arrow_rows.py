"""Turns an Arrow batch into rows: a list of dicts with plain Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.record.elements import Batch, RowBatch


def rows_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row, from column name to value.

    Example:
        >>> rows_of_arrow(pa.record_batch({"a": [1, 2], "b": ["x", None]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    if not batch.num_columns:
        return [{} for _ in range(batch.num_rows)]
    names = batch.schema.names
    # `to_numpy` is no faster, and imports pandas where that is installed: half a second in every process.
    columns = [column.to_pylist() for column in batch.columns]
    return [dict(zip(names, values, strict=False)) for values in zip(*columns, strict=True)]


def rows_of(batch: Batch) -> Sequence[Any]:
    """The rows of any batch."""
    return batch.rows if isinstance(batch, RowBatch) else rows_of_arrow(batch.batch)
