"""`key_by(names).aggregate(...)`: accumulators by key in columns, updated a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import OF, Aggregation, is_partial
from penstock.runtime.operators.aggregation.batch_columns import BatchColumns
from penstock.runtime.operators.aggregation.combiner import Gain
from penstock.runtime.operators.aggregation.grouping import distinct
from penstock.runtime.operators.functions.function_operator import only_column_tables
from penstock.runtime.operators.operator import (
    BatchFormats,
    Operator,
    OperatorContext,
    Output,
)
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.typed_columns import Slots

#: Name of the state table that holds the accumulators.
AGGREGATE_STATE: Final = "aggregate"

#: Rows of one output batch.
_SLICE: Final = 1 << 16


class KeyedAggregateOperator(Operator):
    """Keeps the accumulators of each key and emits the results of the keys that a batch has touched.

    Rows are turned into columns, so that both kinds of batches have one state. What it emits are Arrow
    batches: the key's columns, then a column for each function.

    Args:
        emit_every: Seconds between two outputs; `None` emits for every batch. What was touched since the
            last output is emitted before a barrier, too, so that no snapshot has to know it.
        is_combined: Whether a combiner stands in front of the exchange.
    """

    batch_format: ClassVar[BatchFormats] = "both"
    keyed = True

    def __init__(
        self,
        key: ColumnKey,
        aggregation: Aggregation,
        emit_every: float | None = None,
        *,
        is_combined: bool = False,
    ) -> None:
        self._key = key
        self._is_combined = is_combined
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation)
        self._emit_every = emit_every
        self._gain = Gain()
        self._table: ColumnTable | None = None
        #: The pairs of key and value of each result that counts different values.
        self._pairs: dict[str, ColumnTable] = {}
        self._monotonic: Callable[[], float] = lambda: 0.0
        self._flush_at: float | None = None
        self._touched: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._records_in = self._records_out = 0

    def open(self, context: OperatorContext) -> None:
        names = {name: f"{AGGREGATE_STATE}{OF}{name}" for name in self._aggregation.pair_columns}
        tables = only_column_tables(context, (AGGREGATE_STATE, *names.values()), "an aggregation")
        self._table = tables[AGGREGATE_STATE]
        self._pairs = {name: tables[table] for name, table in names.items()}
        self._monotonic = context.connector.clock.monotonic

    @property
    def only_reads(self) -> bool:
        return True

    @property
    def doing(self) -> str:
        return f"aggregating by {self._key.__name__}"

    @property
    def flush_at(self) -> float | None:
        return self._flush_at

    def process(self, batch: Batch) -> Iterator[Output]:
        assert self._table is not None, "open() comes first"
        self._records_in += len(batch)
        if isinstance(batch, ArrowBatch) and is_partial(batch.batch):
            slots = self._aggregation.merge(self._table, batch.batch)
        elif len(batch):
            # A combiner's parts that had become rows on the way would be counted as records.
            assert isinstance(batch, ArrowBatch) or not self._is_combined, "a combiner sends columns"
            touched = []
            for rows, keys, inputs in self._columns.of(batch):
                touched.append(self._merged(len(batch) if rows is None else len(rows), keys, inputs))
                self._aggregation.add_rows(self._table, self._pairs, keys, inputs)
            slots = touched[0] if len(touched) == 1 else distinct(np.concatenate(touched))
        else:
            return
        if self._emit_every is None:
            yield from self._emitted(slots)
            return
        if self._flush_at is None:
            self._flush_at = self._monotonic() + self._emit_every
        self._touch(slots)

    def flush(self) -> Iterator[Output]:
        self._flush_at = None
        slots = np.flatnonzero(self._touched)
        self._touched[slots] = False
        for start in range(0, len(slots), _SLICE):
            yield from self._emitted(slots[start : start + _SLICE])

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        return self.flush()

    def end_of_data(self) -> Iterator[Output]:
        return self.flush()

    def statistics(self) -> OperatorStatistics:
        return OperatorStatistics(self._records_in, self._records_out)

    def _merged(self, rows: int, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]) -> Slots:
        assert self._table is not None, "open() comes first"
        if not self._gain.should_try(rows):
            touched = self._aggregation.merge_each(self._table, keys, inputs)
            if touched is not None:
                return touched
        partials = self._aggregation.partials(keys, inputs)
        self._gain.learn(rows, partials.num_rows)
        return self._aggregation.merge(self._table, partials)

    def _emitted(self, slots: Slots) -> Iterator[Output]:
        assert self._table is not None, "open() comes first"
        if not len(slots):
            return
        self._records_out += len(slots)
        for _, keys, results in self._aggregation.emitted(self._table, slots):
            columns, names = [*keys.columns, *results.values()], [*keys.schema.names, *results]
            yield ArrowBatch(pa.RecordBatch.from_arrays(columns, names=names))

    def _touch(self, slots: Slots) -> None:
        end = int(slots.max(initial=-1)) + 1
        if end > len(self._touched):
            longer = np.zeros(2 * end, np.bool_)
            longer[: len(self._touched)] = self._touched
            self._touched = longer
        self._touched[slots] = True
