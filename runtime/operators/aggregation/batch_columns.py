"""`BatchColumns`: the columns of a batch that an aggregation reads, for Arrow batches and rows alike.

`ColumnOperator` is the base of all operators that aggregate columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.aggregation import OF, Aggregation
from penstock.runtime.operators.functions.function_operator import only_column_tables
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.arrow_types import NoColumnTypeError, type_of_value
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.record.row_columns import Places, RowColumn, uniform_rows
from penstock.runtime.state.column_table import ColumnTable

#: Digits of decimals in state.
_DIGITS: Final = 38
#: Plain types of text and bytes, by the types that encode them in another way.
_ENCODED: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


class ColumnsOfRows(NamedTuple):
    """Columns of some rows of a batch; `rows` are their indexes, `None` for all rows."""

    rows: Places | None
    keys: dict[str, pa.Array]
    inputs: dict[str, pa.Array]


class BatchColumns:
    """Finds the columns of the key, and those that the functions read.

    The values of rows may have different types (`row_columns.py`). Rows with several types in one column are
    divided into groups with one type in each column.

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
        """The columns of a batch; raises if one is missing or unusable, or if a row is no dict."""
        if isinstance(batch, ArrowBatch):
            yield self._found(None, batch.batch)
            return
        try:
            columns = {name: self._column(batch.rows, name) for name in self._names}
            for places, arrays in uniform_rows(columns, len(batch), in_order=self._in_order):
                batch_of = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
                yield self._found(places, batch_of)
        except NoColumnTypeError as error:
            # The rows before it come first, so that the first bad record decides the error.
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
        columns = [_column(batch.batch, name) for name in self._names]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, names=list(self._names)))


class ColumnOperator(Operator):
    batch_format: ClassVar[BatchFormats] = "both"

    def __init__(self, key: ColumnKey, aggregation: Aggregation) -> None:
        self._key = key
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation)
        self._records_in = self._records_out = 0

    @property
    def only_reads(self) -> bool:
        return True

    def statistics(self) -> OperatorStatistics:
        return OperatorStatistics(self._records_in, self._records_out, extra=self._counters())

    def _counters(self) -> Mapping[str, int]:
        return {}


class KeyedColumnOperator(ColumnOperator):
    """Keeps the accumulators of each key in a column table.

    Attributes:
        state_name: Name of the state table; tables of pairs are named after it and after their result.
        owner: Name of the operator in messages.
    """

    keyed = True
    state_name: ClassVar[str]
    owner: ClassVar[str]

    _table: ColumnTable
    #: Tables of pairs of key and value, by the result that counts distinct values.
    _pairs: Mapping[str, ColumnTable]

    def open(self, context: OperatorContext) -> None:
        names = {name: f"{self.state_name}{OF}{name}" for name in self._aggregation.pair_columns}
        tables = only_column_tables(context, (self.state_name, *names.values()), self.owner)
        self._table = tables[self.state_name]
        self._pairs = {name: tables[table] for name, table in names.items()}


def chosen_rows(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    if isinstance(batch, ArrowBatch):
        mask, moments = pa.array(rows), batch.timestamps
        return ArrowBatch(batch.batch.filter(mask), None if moments is None else moments.filter(mask))
    stamps = batch.timestamps
    return RowBatch(
        list(compress(batch.rows, rows)), None if stamps is None else list(compress(stamps, rows))
    )


def _type_in_state(value: Any) -> pa.DataType:
    """The type of a value; decimals of one scale share the type with the maximum precision."""
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
