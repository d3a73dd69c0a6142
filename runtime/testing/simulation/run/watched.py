"""Wrappers of a user's operators and sources, which inject faults and slow sources down.

In most runs rows come one by one, so a slice may end after any of them. In others they come in small batches.
The process may die before each call of users' code, and after a commit. Users' code may be slow, or fail.

A user's source is slowed down, so that checkpoints and failures come while it still reads. Otherwise a test's
input of some dozen records would be read in one step. Only `poll` changes: it returns fewer records, and none
during a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.runtime.operators.functions.record_functions import MapBatchesOperator
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.operator import Operator, OperatorContext, Output, SavedList
from penstock.runtime.operators.operator_state import RawState
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext, Polled, Source
from penstock.runtime.operators.user_code.failure import CurrentRecord
from penstock.runtime.record.elements import Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit


@dataclass(frozen=True, slots=True)
class Strikes:
    """Hooks of the simulation around users' code.

    Attributes:
        record: Called before users' code takes a record, which takes time and may fail.
        effect: Called before users' code has an effect outside; the process may die.
        committed: Called after a commit.
    """

    record: Callable[[], None]
    effect: Callable[[], None]
    committed: Callable[[], None]


class WatchedOperator(Operator):
    """Runs an operator with up to `rows` records at a time (0 for no limit); see the module's text."""

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
        return self._operator.only_reads

    def open(self, context: OperatorContext) -> None:
        self._operator.isolates = self.isolates
        self._operator.open(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        for part in self._parts(batch):
            for _ in range(len(part)):
                self._strikes.record()
            if self._is_sink:
                self._strikes.effect()
            yield from self._operator.process(part)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        return self._operator.process_watermark(watermark)

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        return self._operator.process_status(status)

    @property
    def holds_watermark(self) -> bool:
        return self._operator.holds_watermark

    @property
    def flush_at(self) -> float | None:
        return self._operator.flush_at

    def flush(self) -> Iterator[Output]:
        self._strikes.effect()
        return self._operator.flush()

    @property
    def tick_at(self) -> float | None:
        return self._operator.tick_at

    def tick(self, now: float) -> Iterator[Output]:
        return self._operator.tick(now)

    def end_of_data(self) -> Iterator[Output]:
        return self._operator.end_of_data()

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        self._strikes.effect()
        return self._operator.prepare_snapshot_pre_barrier()

    def handle_event(self, event: Any) -> None:
        self._strikes.effect()
        self._operator.handle_event(event)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList] | None:
        self._strikes.effect()
        return self._operator.snapshot(checkpoint_id)

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return self._operator.snapshot_raw(checkpoint_id)

    def notify_checkpoint_complete(self, permit: CommitPermit) -> None:
        self._strikes.effect()
        self._operator.notify_checkpoint_complete(permit)
        if self._is_sink:
            self._strikes.committed()
            self._strikes.effect()

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._operator.notify_checkpoint_aborted(checkpoint_id)

    @property
    def doing(self) -> str:
        return self._operator.doing

    @property
    def current_record(self) -> CurrentRecord | None:
        return self._operator.current_record

    def statistics(self) -> OperatorStatistics:
        return self._operator.statistics()

    def close(self) -> None:
        self._operator.close()

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        if self._takes_batches or not isinstance(batch, RowBatch):
            yield batch
        else:
            yield from batch.slices(self._rows or max(1, len(batch)))


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of sources.

    Attributes:
        chunk: Maximum records of one poll.
        pause: Virtual seconds between two polls.
        rows: Maximum records of an operator at a time; 0 for no limit.
    """

    chunk: int
    pause: float
    rows: int = 1


def paced(source: Source[Any], pace: Pace) -> Source[Any]:
    """Return the source with this pace, or unchanged if its class can't be extended."""

    def reader(self: Any, context: ConnectorContext, splits: Any) -> Any:
        return _paced_reader(kind.reader(self, context, splits), context, pace)

    kind = type(source)
    _extend(source, {"reader": reader})
    return source


def _paced_reader(reader: Any, context: ConnectorContext, pace: Pace) -> Any:
    kind = type(reader)
    ready_at = [0.0]

    def poll(self: Any, max_rows: int) -> Any:
        now = context.clock.monotonic()
        if now < ready_at[0]:
            return Polled(ready_at=ready_at[0])
        ready_at[0] = now + pace.pause
        return kind.poll(self, min(max_rows, pace.chunk))

    _extend(reader, {"poll": poll})
    return reader


def _extend(thing: Any, methods: dict[str, Any]) -> None:
    """Override methods of one object of any class; errors still show that class."""
    kind = type(thing)
    try:
        extended = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
        object.__setattr__(thing, "__class__", extended)
    except TypeError:  # a class of C, a final one, or one that counts its subclasses' arguments
        return
