"""The columns of a batch that an aggregation looks at, of Arrow batches and of rows alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.arrow_types import NoColumnTypeError, type_of_value
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.record.row_columns import Places, RowColumn, uniform_rows

#: Digits of decimals in state.
_DIGITS: Final = 38
#: Other encodings of texts and bytes, with the plain one.
_ENCODED: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


class ColumnsOfRows(NamedTuple):
    """Columns of some rows of a batch; `rows` are their numbers, `None` for all of them."""

    rows: Places | None
    keys: dict[str, pa.Array]
    inputs: dict[str, pa.Array]


class BatchColumns:
    """Finds the columns of the key, and those that functions look at.

    Values of rows have types of their own (`row_columns.py`). Rows with several types in one column come in
    parts, each with one type in each column.

    Example:
        >>> from penstock.runtime.operators.aggregation.sums import Sum
        >>> columns = BatchColumns(ColumnKey(["k"]), Aggregation(["k"], {"total": Sum("v")}))
        >>> for rows, keys, inputs in columns.of(RowBatch([{"k": "a", "v": 1}, {"k": "b"}, {"v": 2.5}])):
        ...     print(rows.tolist(), keys["k"].to_pylist(), inputs["v"].to_pylist())
        [0, 1] ['a', 'b'] [1, None]
        [2] [None] [2.5]
    """

    def __init__(self, key: ColumnKey, aggregation: Aggregation) -> None:
        self._key = key
        self._inputs = aggregation.inputs
        self._counted = aggregation.counted - set(key.names)
        self._in_order = aggregation.is_ordered
        self._names = tuple(dict.fromkeys((*key.state_names, *self._inputs)))

    def of(self, batch: Batch) -> Iterator[ColumnsOfRows]:
        """The columns of a batch.

        Raises:
            PenstockError: A column is missing, a row is no dict, or a value is of no Arrow type.
            KeyTypeError: A column can't be part of a key.
        """
        if isinstance(batch, ArrowBatch):
            yield self._found(None, batch.batch)
            return
        try:
            columns = {name: self._column(batch.rows, name) for name in self._names}
            for places, arrays in uniform_rows(columns, len(batch), in_order=self._in_order):
                batch_of = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
                yield self._found(places, batch_of)
        except NoColumnTypeError as error:
            # Those in front of it come first, so that the error is that of the first bad record.
            if error.place:
                for part in self.of(RowBatch(batch.rows[: error.place])):
                    yield part if part.rows is not None else part._replace(rows=np.arange(error.place))
            row = batch.rows[error.place]
            msg = (
                f"aggregate can't take the record {short_repr(row)}: {error}; put a map before key_by that "
                "converts the value"
            )
            raise PenstockError(msg) from error

    def _found(self, places: Places | None, columns: pa.RecordBatch) -> ColumnsOfRows:
        keys = dict(zip(self._key.state_names, self._key.columns(columns), strict=True))
        return ColumnsOfRows(places, keys, {name: _plain(_column(columns, name)) for name in self._inputs})

    def _column(self, rows: Sequence[Any], name: str) -> RowColumn:
        try:
            values = [row.get(name) for row in rows]
        except AttributeError:
            wrong = next(row for row in rows if not isinstance(row, dict))
            msg = (
                f"aggregate needs Arrow batches or rows that are dicts, and got {short_repr(wrong)} of type "
                f"{type(wrong).__name__}; put a map before key_by that makes dicts"
            )
            raise PenstockError(msg) from None
        if name in self._counted:
            values = [None if value is None else True for value in values]
        return RowColumn.of(values, _type_in_state)

    def projected(self, batch: ArrowBatch) -> ArrowBatch:
        """The batch without the columns that no function looks at."""
        columns = [_column(batch.batch, name) for name in self._names]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, names=list(self._names)))


def chosen_rows(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    if isinstance(batch, ArrowBatch):
        mask, moments = pa.array(rows), batch.timestamps
        return ArrowBatch(batch.batch.filter(mask), None if moments is None else moments.filter(mask))
    stamps = batch.timestamps
    return RowBatch(
        list(compress(batch.rows, rows)), None if stamps is None else list(compress(stamps, rows))
    )


def _type_in_state(value: Any) -> pa.DataType:
    """The type of a value, with all digits for decimals: a state has one type for those of one scale."""
    return type_of_value(value, digits=_DIGITS)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    position = batch.schema.get_field_index(name)
    if position < 0:
        known = ", ".join(map(repr, batch.schema.names))
        msg = f"there is no column {name!r}, or more than one; the columns are {known}"
        raise PenstockError(msg)
    return batch.column(position)


def _plain(column: pa.Array) -> pa.Array:
    """The values without their encoding, so that batches of different encodings share a state."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    plain = _ENCODED.get(column.type)
    return column if plain is None else column.cast(plain)
