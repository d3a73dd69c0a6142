"""`key_by(names).aggregate(...)`: accumulators by key in columns, and the combiner before the exchange.

**`KeyedAggregateOperator`** updates the accumulators one batch at a time.

**`Combiner`** keeps partial results before an exchange (Flink: local aggregation with mini-batches). It
groups the records of one sender into one row per key, and sends these rows instead. It sends them after a
tenth of a second, before a barrier, at the end of the data, and when it has `MOST_KEYS` rows. With windows it
also sends them before a watermark that ends a window. With few keys that saves the exchange and the receiver
nearly all their work.

If keys hardly repeat, grouping only costs time. So a combiner compares each batch's number of rows before and
after grouping (`Gain`). If grouping has saved few rows, it sends some batches without grouping them, then
tries again.

No snapshot holds a combiner's partial results: it has sent them all when the barrier leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import PARTIAL, Aggregation, is_partial
from penstock.runtime.operators.aggregation.batch_columns import ColumnOperator, KeyedColumnOperator
from penstock.runtime.operators.aggregation.column_aggregate import distinct, grown
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.typed_columns import Slots

#: Maximum seconds for which partial results are kept.
PATIENCE: Final = 0.1

#: Maximum number of kept keys.
MOST_KEYS: Final = 1 << 16

#: Minimum share of a batch's rows that grouping must save to be worthwhile.
_LEAST_GAIN: Final = 0.4
#: Pause after a batch without gain before grouping is tried again, as a multiple of the batch's rows.
_PAUSE: Final = 32
#: Minimum number of rows of a batch that predicts the gain of the next batches.
_TELLING: Final = 256

#: Name of the state table that holds the accumulators.
AGGREGATE_STATE: Final = "aggregate"

#: Maximum rows of an output batch of `flush`.
_SLICE: Final = 1 << 16


class Gain:
    """Decides whether to group batches by key; pauses after a batch without gain, then tries again.

    The pause is counted in rows. Small batches predict nothing, as few keys repeat in them.

    Example:
        >>> gain = Gain()
        >>> gain.learn(1000, 999)
        False
        >>> [gain.should_try(1000) for _ in range(34)].count(True)
        2
    """

    def __init__(self) -> None:
        self._pause = 0

    def should_try(self, rows: int) -> bool:
        if self._pause <= 0:
            return True
        self._pause -= rows
        return False

    def learn(self, rows: int, left: int) -> bool:
        """Note the rows of a batch before and after grouping; return false if grouping did not pay off."""
        if rows < _TELLING or left <= (1 - _LEAST_GAIN) * rows:
            return True
        self._pause = _PAUSE * rows
        return False


class Combiner(ColumnOperator):
    """Keeps partial results for a short time; subclasses decide which batches are grouped, and how."""

    def __init__(self, key: ColumnKey, aggregation: Aggregation) -> None:
        super().__init__(key, aggregation)
        self._gain = Gain()
        self._table = ColumnTable("partial results", 1, tracks_changes=False)

    def flush(self) -> Iterator[Output]:
        self._flush_at = None
        if not len(self._table):
            return
        slots = self._table.all_slots
        sent = [self._aggregation.partials_of(self._table, slots[some]) for some in self._table.alike(slots)]
        self._table.clear()
        for partials in sent:
            yield ArrowBatch(partials.replace_schema_metadata(PARTIAL))

    def _taken_in(
        self, rows: int, partials: pa.RecordBatch, extra: Mapping[str, pa.Array] | None = None
    ) -> Iterator[Output]:
        """Keep the partial results of a batch; send them at once if grouping saved too few rows."""
        if not self._gain.learn(rows, partials.num_rows):
            yield from self._passed_on(ArrowBatch(partials.replace_schema_metadata(PARTIAL)))
            return
        self._aggregation.merge(self._table, partials, extra)
        if self._flush_at is None:
            self._flush_at = self._monotonic() + PATIENCE
        if len(self._table) >= MOST_KEYS:
            yield from self.flush()

    def _passed_on(self, batch: Batch) -> Iterator[Output]:
        """Send the kept partial results, then this batch, so that the rows of a key keep their order."""
        yield from self.flush()
        yield batch


class CombineOperator(Combiner):
    """Groups records by key before they are sent; for aggregations without windows.

    Watermarks overtake the kept partial results. That is harmless: the aggregation does not use event time,
    and its results have no timestamps.
    """

    @property
    def doing(self) -> str:
        return "combining rows by key"

    def process(self, batch: Batch) -> Iterator[Output]:
        if isinstance(batch, ArrowBatch) and not self._gain.should_try(len(batch)):
            yield from self._passed_on(self._columns.projected(batch))
            return
        for rows, keys, inputs in self._columns.of(batch):
            count = len(batch) if rows is None else len(rows)
            yield from self._taken_in(count, self._aggregation.partials(keys, inputs))


class KeyedAggregateOperator(KeyedColumnOperator):
    """Keeps the accumulators of each key and emits the results of the keys that a batch has touched.

    Rows are converted to columns, so that both formats have the same state. The output is Arrow batches: the
    columns of the key, then a column for each function.

    Args:
        emit_every: Seconds between two outputs; `None` emits after every batch. The keys touched since the
            last output are also emitted before each barrier, so no snapshot has to record them.
        has_combiner: Whether a combiner runs before the exchange.
    """

    state_name, owner = AGGREGATE_STATE, "an aggregation"

    def __init__(
        self,
        key: ColumnKey,
        aggregation: Aggregation,
        emit_every: float | None = None,
        *,
        has_combiner: bool = False,
    ) -> None:
        super().__init__(key, aggregation)
        self._has_combiner = has_combiner
        self._emit_every = emit_every
        self._gain = Gain()
        #: Whether a slot was touched since the last output.
        self._touched: NDArray[np.bool_] = np.zeros(0, np.bool_)

    @property
    def doing(self) -> str:
        return f"aggregating by {self._key.__name__}"

    def process(self, batch: Batch) -> Iterator[Output]:
        if isinstance(batch, ArrowBatch) and is_partial(batch.batch):
            slots = self._aggregation.merge(self._table, batch.batch)
        else:
            # If partial results were converted to rows on the way, they would be counted as records.
            assert isinstance(batch, ArrowBatch) or not self._has_combiner, "a combiner sends columns"
            touched = []
            for rows, keys, inputs in self._columns.of(batch):
                touched.append(self._merged(len(batch) if rows is None else len(rows), keys, inputs))
                self._aggregation.add_rows(self._table, self._pairs, keys, inputs)
            slots = touched[0] if len(touched) == 1 else distinct(np.concatenate(touched))
        if self._emit_every is None:
            yield from self._emitted(slots)
            return
        if self._flush_at is None:
            self._flush_at = self._monotonic() + self._emit_every
        self._touched = grown(self._touched, slots)
        self._touched[slots] = True

    def flush(self) -> Iterator[Output]:
        self._flush_at = None
        slots = np.flatnonzero(self._touched)
        self._touched[slots] = False
        for start in range(0, len(slots), _SLICE):
            yield from self._emitted(slots[start : start + _SLICE])

    def _merged(self, rows: int, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]) -> Slots:
        if not self._gain.should_try(rows):
            touched = self._aggregation.merge_each(self._table, keys, inputs)
            if touched is not None:
                return touched
        partials = self._aggregation.partials(keys, inputs)
        self._gain.learn(rows, partials.num_rows)
        return self._aggregation.merge(self._table, partials)

    def _emitted(self, slots: Slots) -> Iterator[Output]:
        for _, keys, results in self._aggregation.emitted(self._table, slots):
            columns, names = [*keys.columns, *results.values()], [*keys.schema.names, *results]
            yield ArrowBatch(pa.RecordBatch.from_arrays(columns, names=names))
