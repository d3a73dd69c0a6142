"""Combiners: what keeps partial results in front of an exchange, by key, or by key and window.

It reduces what passes one sender to one row a key, and sends these rows instead of the records. They leave
after a tenth of a second, before a barrier, at the end, and when they are many. With few keys that spares the
exchange and the receiver nearly everything (Flink: local aggregation with mini-batches).

Where keys hardly repeat it would only cost. So each batch that it has reduced tells how many rows were left.
When that is most of them, it hands a number of batches on as they are, then it tries again.

Nothing that it keeps is in a snapshot: it is empty when the barrier leaves.

# `CombineOperator`: by key

Watermarks pass what it keeps. That is harmless: an aggregation without windows looks at no event time, and
its results have no timestamps.

# `WindowCombineOperator`: by key and window

It is `CombineOperator` for windows. It reduces what passes one sender to one row a key and pane, and sends
these rows instead of the records. What makes windows harder is event time. A partial result can't go to the
side output of late records, so no record that the receiver would call late may be in one.

Why it is right.

1. The receiver's watermark is the lowest of its senders', so it is never ahead of this one's. A record that
   is not late here is not late there either, unless a watermark that ends one of its windows overtakes it. So
   what is kept leaves before such a watermark passes.
2. A record that is late here may or may not be late there. It is sent as it is, with all of its columns, and
   may overtake what is kept. In tumbling windows nothing that is kept is of its window. Where windows
   overlap, functions that go by the order of records do not combine.
3. A receiver that was restored knows the watermark that it had reached. So this operator keeps its own in
   snapshots: the restored ones are not behind those of the receivers either, since both were taken at one
   barrier. Where the aggregation did not combine, the snapshot has none. A job that continues from it knows
   nothing about the receivers, and hands all records on.

Idle senders are the exception: they do not hold the receiver's watermark back. When one is active again, its
records may be late there and not here. The receiver drops and counts such partial results, as Flink does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.operators.aggregation.aggregation import PARTIAL, Aggregation
from penstock.runtime.operators.aggregation.batch_columns import BatchColumns, chosen_rows
from penstock.runtime.operators.aggregation.panes import ColumnWindows, Moments, Panes, moments_of
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.windows.window import REACHED
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, Watermark
from penstock.runtime.state.column_table import ColumnTable

#: Seconds for which partial results are kept.
PATIENCE: Final = 0.1

#: Maximum number of kept keys.
MOST_KEYS: Final = 1 << 16

#: Share of the rows that must go for reducing to pay.
_LEAST_GAIN: Final = 0.4

#: How many times the rows of a batch are handed on as they are before it is tried again.
_UNTRIED: Final = 32

#: A batch of fewer rows tells nothing about the others.
_TELLING: Final = 256


class Gain:
    """Whether reducing makes records fewer; where it does not, it is tried again from time to time.

    What is handed on meanwhile is counted in rows: a small batch, in which few keys repeat, says little about
    large ones.

    Example:
        >>> gain = Gain()
        >>> gain.learn(1000, 999)
        False
        >>> [gain.should_try(1000) for _ in range(34)].count(True)
        2
    """

    def __init__(self) -> None:
        self._untried = 0

    def should_try(self, rows: int) -> bool:
        if self._untried <= 0:
            return True
        self._untried -= rows
        return False

    def learn(self, rows: int, left: int) -> bool:
        """A batch of so many rows has become so many.

        Return whether reducing pays, as far as that is known.
        """
        if rows < _TELLING or left <= (1 - _LEAST_GAIN) * rows:
            return True
        self._untried = _UNTRIED * rows
        return False


class Combiner(Operator):
    """Keeps partial results for a while; subclasses say which batches are reduced, and how.

    Args:
        aggregation: All of its functions must combine.
    """

    batch_format: ClassVar[BatchFormats] = "both"

    def __init__(self, key: ColumnKey, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation)
        self._gain = Gain()
        self._table = ColumnTable("combined", 1, tracks_changes=False)
        self._flush_at: float | None = None
        self._monotonic: Callable[[], float] = lambda: 0.0
        self._records_in = self._records_out = 0

    def open(self, context: OperatorContext) -> None:
        self._monotonic = context.connector.clock.monotonic

    @property
    def only_reads(self) -> bool:
        return True

    @property
    def flush_at(self) -> float | None:
        return self._flush_at

    def flush(self) -> Iterator[Output]:
        self._flush_at = None
        if not len(self._table):
            return
        slots = self._table.all_slots
        sent = [self._aggregation.partials_of(self._table, slots[some]) for some in self._table.alike(slots)]
        self._table.clear()
        for parts in sent:
            yield self._sent(ArrowBatch(parts.replace_schema_metadata(PARTIAL)))

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        return self.flush()

    def end_of_data(self) -> Iterator[Output]:
        return self.flush()

    def statistics(self) -> OperatorStatistics:
        return OperatorStatistics(self._records_in, self._records_out)

    def _taken_in(
        self, rows: int, partials: pa.RecordBatch, extra: Mapping[str, pa.Array] | None = None
    ) -> Iterator[Output]:
        """Keep the partial results of a batch; send them at once where that is most of the batch."""
        if not self._gain.learn(rows, partials.num_rows):
            yield from self._handed_on(ArrowBatch(partials.replace_schema_metadata(PARTIAL)))
            return
        self._aggregation.merge(self._table, partials, extra)
        if self._flush_at is None:
            self._flush_at = self._monotonic() + PATIENCE
        if len(self._table) >= MOST_KEYS:
            yield from self.flush()

    def _handed_on(self, batch: Batch) -> Iterator[Output]:
        """The kept rows, then a batch as it is: rows of a key keep their order."""
        yield from self.flush()
        yield self._sent(batch)

    def _sent(self, batch: Batch) -> Batch:
        self._records_out += len(batch)
        return batch


class CombineOperator(Combiner):
    """Reduces records by key before they are sent."""

    @property
    def doing(self) -> str:
        return "combining rows by key"

    def process(self, batch: Batch) -> Iterator[Output]:
        self._records_in += len(batch)
        if isinstance(batch, ArrowBatch) and not self._gain.should_try(len(batch)):
            yield from self._handed_on(self._columns.projected(batch))
            return
        for rows, keys, inputs in self._columns.of(batch):
            count = len(batch) if rows is None else len(rows)
            yield from self._taken_in(count, self._aggregation.partials(keys, inputs))


#: The column with the pane of a partial result, in microseconds.
PANE: Final = ":pane"

_FAR: Final = np.iinfo(np.int64).max


class WindowCombineOperator(Combiner):
    """Reduces records by key and pane before they are sent.

    Args:
        aggregation: All of its functions must combine.
    """

    def __init__(self, key: ColumnKey, aggregation: Aggregation, windows: ColumnWindows) -> None:
        super().__init__(key, aggregation)
        self._panes = Panes(windows)
        self._reached: ReachedWatermark | None = None
        self._knows_receivers = True
        self._earliest_end: int = _FAR

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._reached = ReachedWatermark(context, REACHED)
        self._knows_receivers = not context.is_restored or REACHED in context.restored

    @property
    def doing(self) -> str:
        return "combining rows by key and window"

    def process(self, batch: Batch) -> Iterator[Output]:
        assert self._reached is not None, "open() comes first"
        self._records_in += len(batch)
        if not len(batch):
            return
        if not self._knows_receivers or not self._gain.should_try(len(batch)):
            yield from self._handed_on(batch)
            return
        stamps = moments_of(batch)
        late = self._panes.are_late(stamps, self._reached.timestamp)
        if late.any():
            yield self._sent(chosen_rows(batch, late))
            batch, stamps = chosen_rows(batch, ~late), stamps[~late]
        if not len(batch):
            return
        for rows, keys, inputs in self._columns.of(batch):
            own = stamps if rows is None else stamps[rows]
            partials = partials_by_pane(self._aggregation, self._panes, keys, inputs, own)
            panes = partials.column(PANE)
            self._look_for_ends(panes.to_numpy(zero_copy_only=False))
            yield from self._taken_in(len(own), partials, {PANE: panes})

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        assert self._reached is not None, "open() comes first"
        if self._earliest_end - 1 <= self._reached.advance(watermark.timestamp):
            yield from self.flush()

    def flush(self) -> Iterator[Output]:
        self._earliest_end = _FAR
        return super().flush()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        assert self._reached is not None, "open() comes first"
        return {REACHED: self._reached.state()} if self._knows_receivers else {}

    def _look_for_ends(self, panes: Moments) -> None:
        """The first end of a window that is open and holds one of these panes."""
        assert self._reached is not None, "open() comes first"
        for starts, holds in self._panes.windows_of(panes):
            is_open = holds & ~self._panes.are_over(starts, self._reached.timestamp)
            if is_open.any():
                self._earliest_end = min(self._earliest_end, int(starts[is_open].min()) + self._panes.size)


def partials_by_pane(
    aggregation: Aggregation,
    panes: Panes,
    keys: Mapping[str, pa.Array],
    inputs: Mapping[str, pa.Array],
    stamps: Moments,
) -> pa.RecordBatch:
    """One row for each key and pane, in which `PANE` is a column beside those of `Aggregation.partials`.

    Most batches lie within one pane. They are grouped by the key alone, which takes half of the time.
    """
    only = panes.only_one(stamps)
    if only is None:
        return aggregation.partials({**keys, PANE: pa.array(panes.of(stamps))}, inputs)
    partials = aggregation.partials(keys, inputs)
    columns = dict(zip(partials.schema.names, partials.columns, strict=True))
    named = {name: columns.pop(name) for name in keys}
    named |= {PANE: pa.array(np.full(partials.num_rows, only)), **columns}
    return pa.RecordBatch.from_arrays(list(named.values()), names=list(named))
