"""`BatchColumns`: the columns that an aggregation reads from Arrow batches and from rows.

`ColumnOperator` is the base of all operators that aggregate columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.aggregation import OF, Aggregation
from penstock.runtime.operators.functions.function_operator import only_column_tables
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output
from penstock.runtime.operators.user_code.failure import no_dict, short_repr
from penstock.runtime.record.arrow_types import NoColumnTypeError, type_of_value
from penstock.runtime.record.column_key import ColumnKey, only_column
from penstock.runtime.record.column_names import ColumnNames
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.record.row_columns import Places, RowColumn, uniform_rows
from penstock.runtime.state.column_table import ColumnTable

#: Type of a value in state; decimals of one scale have the same type, with the maximum precision.
_type_in_state: Final = partial(type_of_value, digits=38)
#: The plain type for each type that encodes the same values differently.
_ENCODED: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.bool8(): pa.bool_(),
}


def _wide_decimals(column: pa.Array) -> pa.Array:
    return column.cast(pa.decimal128(column.type.precision, column.type.scale))


#: Functions that decode arrays, by the class of the array.
_DECODERS: Final[Mapping[type, Callable[[Any], pa.Array]]] = {
    pa.Decimal32Array: _wide_decimals,
    pa.Decimal64Array: _wide_decimals,
    pa.DictionaryArray: pa.DictionaryArray.dictionary_decode,
    pa.RunEndEncodedArray: pc.run_end_decode,
}


class ColumnsOfRows(NamedTuple):
    """Columns of some rows of a batch; `rows` are the indexes of these rows, `None` for all."""

    rows: Places | None
    keys: dict[str, pa.Array]
    inputs: dict[str, pa.Array]


class BatchColumns:
    """Finds the columns of the key, and the columns that the functions read.

    A column of rows may have values of different types. The rows are divided into groups with one type in
    each column (`row_columns.py`).

    Args:
        inputs: Names of the columns that the operator reads.
        counted: Columns whose values are only tested for null.
        in_order: Whether all rows keep their order, and not only rows of equal types.
        call: The stream's method, for messages.

    Example:
        >>> columns = BatchColumns(ColumnKey(["k"]), ["v"])
        >>> for rows, keys, inputs in columns.of(RowBatch([{"k": "a", "v": 1}, {"k": "b"}, {"v": 2.5}])):
        ...     print(rows.tolist(), keys["k"].to_pylist(), inputs["v"].to_pylist())
        [0, 1] ['a', 'b'] [1, None]
        [2] [None] [2.5]
    """

    def __init__(
        self,
        key: ColumnKey,
        inputs: Sequence[str],
        *,
        counted: frozenset[str] = frozenset(),
        in_order: bool = False,
        call: str = "aggregate",
    ) -> None:
        self._key = key
        self._inputs = tuple(inputs)
        self._counted = counted - set(key.names)
        self._in_order = in_order
        self._call = call
        self._names = tuple(dict.fromkeys((*key.state_names, *self._inputs)))
        self._of_records = ColumnNames(call, (*key.names, *self._inputs))

    def open(self, context: OperatorContext) -> None:
        if context.is_restored:
            self._of_records.only_warn()

    def of(self, batch: Batch) -> Iterator[ColumnsOfRows]:
        """The columns of a batch; raises if an Arrow batch lacks a column, or a column or row is unusable."""
        if isinstance(batch, ArrowBatch):
            yield self._found(None, batch.batch)
            return
        self._of_records.check(batch.rows)
        try:
            columns = {name: self._column(batch.rows, name) for name in self._names}
            for places, arrays in uniform_rows(columns, len(batch), in_order=self._in_order):
                batch_of = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
                yield self._found(places, batch_of)
        except NoColumnTypeError as error:
            # Yield the earlier rows: the caller may refuse one of them, and that error must come first.
            if error.place:
                for part in self.of(RowBatch(batch.rows[: error.place])):
                    yield part if part.rows is not None else part._replace(rows=np.arange(error.place))
            row = batch.rows[error.place]
            msg = (
                f"{self._call} can't take the record {short_repr(row)}: {error}; convert the value with map "
                "before key_by"
            )
            raise PenstockError(msg) from error

    def _found(self, places: Places | None, columns: pa.RecordBatch) -> ColumnsOfRows:
        keys = dict(zip(self._key.state_names, self._key.columns(columns), strict=True))
        inputs = {name: plain_column(only_column(columns, name)) for name in self._inputs}
        return ColumnsOfRows(places, keys, inputs)

    def _column(self, rows: Sequence[Any], name: str) -> RowColumn:
        try:
            values = [row.get(name) for row in rows]
        except AttributeError:
            wrong = next(row for row in rows if not isinstance(row, dict))
            advice = "make dicts with map before key_by"
            raise PenstockError(no_dict(self._call, wrong, advice)) from None
        if name in self._counted:
            values = [None if value is None else True for value in values]
        return RowColumn.of(values, _type_in_state)

    def projected(self, batch: ArrowBatch) -> ArrowBatch:
        """The batch without the columns that the aggregation does not read, and without timestamps."""
        columns = [only_column(batch.batch, name) for name in self._names]
        return ArrowBatch(pa.RecordBatch.from_arrays(columns, names=list(self._names)))


class ColumnOperator(Operator):
    """Aggregates columns; it flushes before each barrier and at the end of the data."""

    batch_format: ClassVar[BatchFormats] = "both"

    _monotonic: Callable[[], float]

    def __init__(self, key: ColumnKey, aggregation: Aggregation) -> None:
        self._key = key
        self._aggregation = aggregation
        self._columns = BatchColumns(
            key, aggregation.inputs, counted=aggregation.counted, in_order=aggregation.is_ordered
        )
        self._flush_at: float | None = None

    def open(self, context: OperatorContext) -> None:
        self._columns.open(context)
        self._monotonic = context.connector.clock.monotonic

    @property
    def flush_at(self) -> float | None:
        return self._flush_at

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        return self.flush()

    def end_of_data(self) -> Iterator[Output]:
        return self.flush()

    @property
    def only_reads(self) -> bool:
        return True


class KeyedColumnOperator(ColumnOperator):
    """Keeps the accumulators of each key in a column table.

    Attributes:
        state_name: Name of the state table, and prefix of the names of the tables of pairs.
        owner: Name of the operator in messages.
    """

    keyed = True
    state_name: ClassVar[str]
    owner: ClassVar[str]

    _table: ColumnTable
    #: Tables of pairs of key and value, by the result that counts distinct values.
    _pairs: Mapping[str, ColumnTable]

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        names = {name: f"{self.state_name}{OF}{name}" for name in self._aggregation.pair_columns}
        tables = only_column_tables(context, (self.state_name, *names.values()), self.owner)
        self._table = tables[self.state_name]
        self._pairs = {name: tables[table] for name, table in names.items()}


def plain_column(column: pa.Array) -> pa.Array:
    """Decode the values, so that batches of different encodings share a state."""
    while (decode := _DECODERS.get(type(column))) is not None:
        column = decode(column)
    plain = _ENCODED.get(column.type)
    return column if plain is None else column.cast(plain)
