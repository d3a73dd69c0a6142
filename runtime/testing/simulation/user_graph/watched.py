"""`WatchedOperator`: an operator with users' code, in which the simulation may strike.

In most runs rows come one by one, so a slice may end after any of them. In others they come some at a time.
The process may die before each call of users' code, and after a commit. Users' code may be slow, or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.runtime.operators.functions.map_batches import MapBatchesOperator
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.sinks.sink import SinkOperator
from penstock.runtime.operators.state.raw_state import RawState
from penstock.runtime.operators.user_code.record_cursor import CurrentRecord
from penstock.runtime.record.elements import Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.snapshot.permit import CommitPermit


@dataclass(frozen=True, slots=True)
class Strikes:
    """Where the simulation strikes.

    Attributes:
        record: Users' code takes a record: time passes, and it may fail.
        effect: Something is about to be done: the process may die.
        committed: A transaction was committed.
    """

    record: Callable[[], None]
    effect: Callable[[], None]
    committed: Callable[[], None]


class WatchedOperator(Operator):
    """Runs an operator; see the module's text.

    Args:
        strikes: Of the simulation.
        rows: Most records that it is given at a time; 0 for as many as there are.
    """

    def __init__(self, operator: Operator, strikes: Strikes, rows: int = 1) -> None:
        self._rows = rows
        self._operator = operator
        self._strikes = strikes
        self._is_sink = isinstance(operator, SinkOperator)
        self._takes_batches = isinstance(operator, MapBatchesOperator)
        self.keyed = operator.keyed
        self.makes_watermarks = operator.makes_watermarks

    @property
    def only_reads(self) -> bool:
        """Whether none of its functions can change or keep a record."""
        return self._operator.only_reads

    def open(self, context: OperatorContext) -> None:
        """Open it."""
        self._operator.isolates = self.isolates
        self._operator.open(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        """Process a batch, row by row where rows are what it takes."""
        for part in self._parts(batch):
            for _ in range(len(part)):
                self._strikes.record()
            if self._is_sink:
                self._strikes.effect()
            yield from self._operator.process(part)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Pass it on."""
        return self._operator.process_watermark(watermark)

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        """Pass it on."""
        return self._operator.process_status(status)

    @property
    def holds_watermark(self) -> bool:
        """Whether it has timers left that a watermark has reached."""
        return self._operator.holds_watermark

    @property
    def flush_at(self) -> float | None:
        """When it wants to emit what it keeps back, or to fire timers."""
        return self._operator.flush_at

    def flush(self) -> Iterator[Output]:
        """Pass it on."""
        self._strikes.effect()
        return self._operator.flush()

    @property
    def tick_at(self) -> float | None:
        """When it wants to be told of time."""
        return self._operator.tick_at

    def tick(self, now: float) -> Iterator[Output]:
        """Pass it on."""
        return self._operator.tick(now)

    def end_of_data(self) -> Iterator[Output]:
        """Pass it on."""
        return self._operator.end_of_data()

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        """Pass it on."""
        self._strikes.effect()
        return self._operator.prepare_snapshot_pre_barrier()

    def handle_event(self, event: Any) -> None:
        """Pass it on."""
        self._strikes.effect()
        self._operator.handle_event(event)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList] | None:
        """Take its state; a sink pre-commits."""
        self._strikes.effect()
        return self._operator.snapshot(checkpoint_id)

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        """Take its raw state."""
        return self._operator.snapshot_raw(checkpoint_id)

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        """Tell it; a sink commits."""
        self._strikes.effect()
        self._operator.notify_checkpoint_complete(permit)
        if self._is_sink:
            self._strikes.committed()
            self._strikes.effect()

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell it."""
        self._operator.notify_checkpoint_aborted(checkpoint_id)

    @property
    def doing(self) -> str:
        """What it runs."""
        return self._operator.doing

    @property
    def current_record(self) -> CurrentRecord | None:
        """Its current record."""
        return self._operator.current_record

    def statistics(self) -> OperatorStatistics:
        """Its counters."""
        return self._operator.statistics()

    def close(self) -> None:
        """Close it."""
        self._operator.close()

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        if self._takes_batches or not isinstance(batch, RowBatch):
            yield batch
        else:
            yield from batch.slices(self._rows or max(1, len(batch)))
