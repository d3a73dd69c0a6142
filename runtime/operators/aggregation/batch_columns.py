"""The columns of a batch that an aggregation looks at, of Arrow batches and of rows alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch


class BatchColumns:
    """Finds the columns of the key, and those that functions look at.

    Args:
        key: Names the key's columns.
        inputs: Names of the other columns.

    Example:
        >>> columns = BatchColumns(ColumnKey(["k"]), ["v"])
        >>> keys, inputs = columns.of(RowBatch([{"k": "a", "v": 1}, {"k": "b"}]))
        >>> keys["k"].to_pylist(), inputs["v"].to_pylist()
        (['a', 'b'], [1, None])
    """

    def __init__(self, key: ColumnKey, inputs: Sequence[str]) -> None:
        self._key = key
        self._inputs = tuple(inputs)
        self._names = tuple(dict.fromkeys((*key.names, *inputs)))

    def of(self, batch: Batch) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """The key's columns in canonical form, and the others.

        Raises:
            PenstockError: A column is missing, a row is no dict, or its values are of no Arrow type.
            KeyTypeError: A column can't be part of a key.
        """
        columns = _columns_of_rows(batch, self._names) if isinstance(batch, RowBatch) else batch.batch
        keys = dict(zip(self._key.names, self._key.columns(columns), strict=True))
        return keys, {name: _plain(_column(columns, name)) for name in self._inputs}

    def projected(self, batch: ArrowBatch) -> ArrowBatch:
        """The batch without the columns that nobody looks at.

        Raises:
            PenstockError: A column is missing.
        """
        columns = [_column(batch.batch, name) for name in self._names]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, names=list(self._names)))


def chosen_rows(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    """Some rows of a batch, with their timestamps."""
    if isinstance(batch, ArrowBatch):
        mask, moments = pa.array(rows), batch.timestamps
        return ArrowBatch(batch.batch.filter(mask), None if moments is None else moments.filter(mask))
    stamps = batch.timestamps
    return RowBatch(
        list(compress(batch.rows, rows)), None if stamps is None else list(compress(stamps, rows))
    )


def _columns_of_rows(batch: RowBatch, names: Sequence[str]) -> pa.RecordBatch:
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in batch.rows]))
        except AttributeError:
            wrong = next(row for row in batch.rows if not isinstance(row, dict))
            msg = (
                f"aggregate needs Arrow batches or rows that are dicts, and got {short_repr(wrong)} of type "
                f"{type(wrong).__name__}; put a map before key_by that makes dicts"
            )
            raise PenstockError(msg) from None
        except (pa.ArrowException, OverflowError) as error:
            msg = f"the values of column {name!r} are of no common type: {error}; put a map before key_by"
            raise PenstockError(msg) from error
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    position = batch.schema.get_field_index(name)
    if position < 0:
        known = ", ".join(map(repr, batch.schema.names))
        msg = f"there is no column {name!r}, or more than one; the columns are {known}"
        raise PenstockError(msg)
    return batch.column(position)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
