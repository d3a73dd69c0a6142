"""Rows of batches, for formats and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.errors import BadRecordError
from penstock.runtime.record.arrow_types import has_leaf
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow, dicts_of_rows


def rows_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row; a `BadRecordError` names a column with a value that Python can't represent."""
    try:
        return dicts_of_arrow(batch)
    except NoPythonValueError as error:
        raise BadRecordError(str(error)) from error


def rows_of(batch: Batch) -> Sequence[Any]:
    return batch.rows if isinstance(batch, RowBatch) else rows_of_arrow(batch.batch)


def records_of(batch: Batch) -> Sequence[Any]:
    """The rows of a batch as `rows_of` returns them, but with dicts for maps."""
    if isinstance(batch, RowBatch) or not any(has_leaf(kind, _is_map) for kind in batch.batch.schema.types):
        return rows_of(batch)
    columns = batch.batch
    return dicts_of_rows(columns.schema.names, zip(*map(from_arrow, columns.columns), strict=True))


def _is_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind))
