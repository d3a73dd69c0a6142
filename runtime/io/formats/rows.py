"""Rows of batches, for formats and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.runtime.errors import BadRecordError
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow


def rows_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row; a `BadRecordError` names a column with a value that Python can't represent."""
    try:
        return dicts_of_arrow(batch)
    except NoPythonValueError as error:
        raise BadRecordError(str(error)) from error


def rows_of(batch: Batch) -> Sequence[Any]:
    return batch.rows if isinstance(batch, RowBatch) else rows_of_arrow(batch.batch)
