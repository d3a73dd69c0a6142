"""Rows of batches for connectors, and how many rows of Arrow a source gives at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.record.arrow_dicts import NoPythonValueError, dicts_of_arrow
from penstock.runtime.record.elements import Batch, RowBatch

#: Rows of an Arrow batch behind which the job keeps up, and the most of one that takes less than 10 ms.
ARROW_ROWS: Final = 64 * 1024
MOST_ARROW_ROWS: Final = 256 * 1024

#: Most rows that a source of lists is asked for: those of the largest slice of a list.
MOST_ASKED: Final = 4_096

#: How much larger than asked for Arrow batches are behind which the job is slow.
_SLOW_FACTOR: Final = 4


def arrow_rows(max_rows: int) -> int:
    """How many rows of Arrow a reader gives when it is asked for `max_rows`.

    A reader is asked for the rows of ten milliseconds. Before it has given a first Arrow batch there is a
    limit, that of lists of rows. At the limit a row takes less than three microseconds, so a large batch
    holds up no barrier for long. A slow job gets small batches. Each batch costs a millisecond whatever its
    size, so a fast job gets very large ones.

    Example:
        >>> arrow_rows(10), arrow_rows(4_096), arrow_rows(200_000)
        (40, 65536, 200000)
    """
    if max_rows < MOST_ASKED:
        return _SLOW_FACTOR * max_rows
    return max(ARROW_ROWS, min(max_rows, MOST_ARROW_ROWS))


def rows_of_arrow(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """One dict per row, from column name to value.

    Raises:
        BadRecordError: Python has no value for one of them; the message names the column.

    Example:
        >>> rows_of_arrow(pa.record_batch({"a": [1, 2], "b": ["x", None]}))
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    try:
        return dicts_of_arrow(batch)
    except NoPythonValueError as error:
        raise BadRecordError(str(error)) from error


def rows_of(batch: Batch) -> Sequence[Any]:
    """The rows of any batch."""
    return batch.rows if isinstance(batch, RowBatch) else rows_of_arrow(batch.batch)
