"""`Combiner`: what keeps reduced rows in front of an exchange; base of `combine_keys` and `combine_panes`.

It reduces what passes one sender to one row a key, and sends these rows instead of the records. They leave
after a tenth of a second, before a barrier, at the end, and when they are many. With few keys that spares the
exchange and the receiver nearly everything (Flink: local aggregation with mini-batches).

Where keys hardly repeat it would only cost. So each batch that it has reduced tells how many rows were left.
When that is most of them, it hands a number of batches on as they are, then it tries again.

Nothing that it keeps is in a snapshot: it is empty when the barrier leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

import pyarrow as pa

from penstock.runtime.operators.aggregation.aggregation import REDUCED, Aggregation
from penstock.runtime.operators.aggregation.batch_columns import BatchColumns
from penstock.runtime.operators.operator import BatchFormats, Operator, OperatorContext, Output
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.state.columns.column_table import ColumnTable

#: Seconds for which reduced rows are kept.
PATIENCE: Final = 0.1

#: Most keys that are kept.
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
        """Whether the next batch, of so many rows, is to be reduced; asked once a batch."""
        if self._untried <= 0:
            return True
        self._untried -= rows
        return False

    def learn(self, rows: int, reduced: int) -> bool:
        """A batch of so many rows has become so many; whether reducing pays as far as that can be told."""
        if rows < _TELLING or reduced <= (1 - _LEAST_GAIN) * rows:
            return True
        self._untried = _UNTRIED * rows
        return False


class Combiner(Operator):
    """Keeps reduced rows for a while; subclasses say which batches are reduced, and how.

    Args:
        aggregation: All of its functions must combine.
    """

    takes: ClassVar[BatchFormats] = "both"

    def __init__(self, key: ColumnKey, aggregation: Aggregation) -> None:
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation)
        self._gain = Gain()
        self._table = ColumnTable("combined", 1, tracks_changes=False)
        self._flush_at: float | None = None
        self._monotonic: Callable[[], float] = lambda: 0.0
        self._records_in = self._records_out = 0

    def open(self, context: OperatorContext) -> None:
        """Take the clock."""
        self._monotonic = context.connector.clock.monotonic

    @property
    def only_reads(self) -> bool:
        """Functions of the user's are given columns, in memory of their own."""
        return True

    @property
    def flush_at(self) -> float | None:
        """When reduced rows have waited long enough."""
        return self._flush_at

    def flush(self) -> Iterator[Output]:
        """Send what is kept."""
        self._flush_at = None
        if not len(self._table):
            return
        slots = self._table.all_slots
        sent = [self._aggregation.parts(self._table, slots[some]) for some in self._table.alike(slots)]
        self._table.clear()
        for parts in sent:
            yield self._sent(ArrowBatch(parts.replace_schema_metadata(REDUCED)))

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        """Nothing stays behind a barrier."""
        return self.flush()

    def end_of_data(self) -> Iterator[Output]:
        """Nothing stays at the end."""
        return self.flush()

    def statistics(self) -> OperatorStatistics:
        """Records taken and emitted."""
        return OperatorStatistics(self._records_in, self._records_out)

    def _taken_in(
        self, rows: int, reduced: pa.RecordBatch, extra: Mapping[str, pa.Array] | None = None
    ) -> Iterator[Output]:
        """Keep what a batch was reduced to; send it at once where that is most of the batch.

        Args:
            rows: Those of the batch.
            reduced: As `Aggregation.reduced` gives it.
            extra: Parts of the key that users do not name.
        """
        if not self._gain.learn(rows, reduced.num_rows):
            yield from self._handed_on(ArrowBatch(reduced.replace_schema_metadata(REDUCED)))
            return
        self._aggregation.merge(self._table, reduced, extra)
        if self._flush_at is None:
            self._flush_at = self._monotonic() + PATIENCE
        if len(self._table) >= MOST_KEYS:
            yield from self.flush()

    def _handed_on(self, batch: Batch) -> Iterator[Output]:
        """What is kept, then a batch as it is: rows of a key keep their order."""
        yield from self.flush()
        yield self._sent(batch)

    def _sent(self, batch: Batch) -> Batch:
        self._records_out += len(batch)
        return batch
