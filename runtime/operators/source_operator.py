"""`SourceOperator`: polls the reader of one subtask, saves its splits, and names the source in its errors.

A source has no input, so it is not an `Operator`. The subtask polls it and passes its records to the chain.
If the splits come from the source's coordinator, it polls a `RequestedSplits` (`requested_splits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators import ExternallyInducedReader
from penstock.runtime.operators.event_time import strategy_only_reads
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.metrics import Metrics, OperatorStatistics
from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.operators.requested_splits import RequestedSplits, can_pause_splits
from penstock.runtime.operators.source import (
    EnumeratesSplits,
    FollowsCheckpoints,
    PausesSplits,
    Polled,
    ReportsLag,
    ReportsSplits,
    Source,
    SourceReader,
    SplitProgress,
)
from penstock.runtime.operators.source_watermarks import (
    NO_CHANGE,
    SourceWatermarks,
    TimeChange,
    WatermarksAligned,
)
from penstock.runtime.operators.user_code.failure import OPERATOR_ERRORS, error_at, short_repr
from penstock.runtime.operators.user_code.function_class import run_method
from penstock.runtime.operators.user_code.result_collector import isolated
from penstock.runtime.record.elements import ArrowBatch, RowBatch
from penstock.runtime.state.own_copy import own_copies
from penstock.runtime.time.watermarks import WatermarkStrategy

P = ParamSpec("P")
T = TypeVar("T")

#: Name of the list state with the unfinished splits.
SPLITS: Final = "splits"

#: Name of the watermark strategy's code in calls of `SourceOperator.guarded`.
_STRATEGY: Final = "event time"


class SourceOperator:
    """Reads a source's splits in one subtask.

    Attributes:
        mark: The checkpoint whose mark the reader has reached, until the checkpoint is taken or aborted.
        change: The change of event time that the last poll caused.
        isolates: Whether mutable records are copied, unless the reader makes new ones.
    """

    _context: OperatorContext

    def __init__(self, source: Source[Any], watermarks: WatermarkStrategy[Any] | None = None) -> None:
        self._source = source
        self._strategy = watermarks
        self._watermarks = None if watermarks is None else SourceWatermarks(watermarks)
        self._reports: ReportsSplits | None = None
        self._pauses: PausesSplits | None = None
        self._paused: frozenset[Hashable] = frozenset()
        self.change = NO_CHANGE
        self.isolates = True
        self._reader: SourceReader[Any] | None = None
        self._induced: ExternallyInducedReader | None = None
        self._follower: FollowsCheckpoints | None = None
        self.mark: int | None = None
        self._is_awaited = False
        self._requested: RequestedSplits[Any] | None = None
        self._records = self._dead_letters = self._skipped = 0
        self._metrics = Metrics()
        self._lag = _LagOfReader()

    def open(
        self,
        context: OperatorContext,
        splits: Sequence[Any] = (),
        send_event: Callable[[Any], None] | None = None,
        report_watermark: Callable[[Any], None] | None = None,
    ) -> None:
        self._context = context
        self._metrics = context.metrics
        mine = list(context.restored.get(SPLITS, splits))
        if send_event is not None and isinstance(self._source, EnumeratesSplits):
            self._requested = RequestedSplits(self._source, context.connector, mine, send_event)
            self._reader = self._requested
        else:
            self._reader = self.guarded("reader", self._source.reader, context.connector, mine)
        self._lag = _LagOfReader(self._reader)
        # Checked once: `isinstance` of a protocol takes longer than many polls.
        self._induced = self._reader if isinstance(self._reader, ExternallyInducedReader) else None
        self._follower = self._reader if isinstance(self._reader, FollowsCheckpoints) else None
        if self._watermarks is not None:
            watermarks, reader = self._watermarks, self._reader
            watermarks.timestamper.warn = context.warn
            self._reports = reader if isinstance(reader, ReportsSplits) else None
            self._pauses = reader if isinstance(reader, PausesSplits) else None
            self.guarded(_STRATEGY, watermarks.open, self._split_progress())
            if report_watermark is not None:
                watermarks.align(report_watermark)
                watermarks.pauses_splits = can_pause_splits(self._pauses)

    def handle_event(self, event: Any) -> None:
        requested = self._requested
        if requested is None:
            self.guarded("handle_event", _refuse, f"it has no coordinator but was sent {event!r:.80}")
        else:
            self.guarded("handle_event", requested.handle_event, event)

    def poll(self, max_rows: int) -> Polled[Any]:
        reader = self._opened_reader
        if self._lag.error is not None:
            self.guarded("lag", _raise, self._lag.error)
        polled = self.guarded("poll", lambda: _checked(reader.poll(max_rows)))
        has_records = polled.batch is not None or polled.dead_letters
        if has_records and self.isolates and getattr(reader, "makes_new_records", False) is not True:
            polled = self.guarded("poll", _isolated, polled)
        if self._induced is not None:
            self.mark = self.guarded("should_trigger_checkpoint", self._induced.should_trigger_checkpoint)
        watermarks = self._watermarks
        if watermarks is not None:
            progress = self._split_progress()
            if (
                progress is not None
                and polled.split is None
                and polled.batch is not None
                and len(polled.batch)
            ):
                what = "a reader with `split_progress` must name the split of each batch"
                self.guarded("poll", _refuse, f"{what}: Polled(batch, split=...)")
            watermarks.pauses_splits = can_pause_splits(self._pauses)
            polled, self.change = self.guarded(_STRATEGY, watermarks.polled, polled, progress)
            self._pause_splits()
        self._records += 0 if polled.batch is None else len(polled.batch)
        self._dead_letters += len(polled.dead_letters)
        self._skipped += polled.skipped
        return polled

    @property
    def reader(self) -> SourceReader[Any] | None:
        """The current reader; `None` while none is open, such as between two assignments."""
        return self._reader if self._requested is None else self._requested.reader

    @property
    def only_reads(self) -> bool:
        strategy = self._strategy
        return getattr(self._source, "only_reads", False) is True and (
            strategy is None or strategy_only_reads(strategy)
        )

    @property
    def is_paused(self) -> bool:
        return self._watermarks is not None and self._watermarks.is_paused

    @property
    def is_held(self) -> bool:
        return self._watermarks is not None and self._watermarks.holds_reader and not self._is_awaited

    def await_mark(self, *, is_awaited: bool) -> None:
        """Set whether a checkpoint waits for the reader to reach its mark.

        The reader then reads up to the mark, even when it is ahead of its alignment group: slower sources may
        wait for that checkpoint.
        """
        if is_awaited != self._is_awaited:
            self._is_awaited = is_awaited
            self._pause_splits()

    def aligned(self, answer: WatermarksAligned) -> None:
        if self._watermarks is not None:
            self._watermarks.aligned(answer)
            self._pause_splits()

    def _pause_splits(self) -> None:
        reader, watermarks = self._pauses, self._watermarks
        if reader is None or watermarks is None:
            return
        ahead = frozenset() if self._is_awaited else watermarks.ahead
        if ahead != self._paused:
            self._paused = ahead
            self.guarded("pause_splits", run_method, reader, "pause_splits", ahead)

    @property
    def tick_at(self) -> float | None:
        return None if self._watermarks is None else self._watermarks.tick_at

    def tick(self, now: float) -> TimeChange:
        watermarks = self._watermarks
        return NO_CHANGE if watermarks is None else self.guarded(_STRATEGY, watermarks.tick, now)

    @property
    def is_externally_induced(self) -> bool:
        return self._induced is not None

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """The unfinished splits, positioned after the last record that `poll` returned."""
        reader = self._opened_reader
        splits = self.guarded("snapshot", lambda: tuple(reader.snapshot()))
        if self._follower is not None:
            self.guarded("snapshot_taken", run_method, self._follower, "snapshot_taken", checkpoint_id)
        return {SPLITS: SavedList(splits)}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        name, follower = "notify_checkpoint_complete", self._follower
        if follower is not None:
            self.guarded(name, run_method, follower, name, checkpoint_id)

    def statistics(self) -> OperatorStatistics:
        """The counters, metrics and lag of the reader; callable from any thread."""
        counted = OperatorStatistics(
            records_out=self._records,
            records_skipped=self._skipped,
            dead_letters=self._dead_letters,
            lag=self._lag.now(),
        )
        return counted.with_metrics(self._metrics.statistics())

    def close(self) -> None:
        reader, self._reader = self._reader, None
        self._lag.close()
        if reader is not None:
            self.guarded("close", run_method, reader, "close")

    def _split_progress(self) -> SplitProgress | None:
        reports = self._reports
        if reports is None:
            return None
        progress = self.guarded("split_progress", lambda: reports.split_progress)
        if not isinstance(progress, SplitProgress):
            msg = f"split_progress returned {short_repr(progress)}; return a SplitProgress(...)"
            return self.guarded("split_progress", _refuse, msg)
        return progress

    @property
    def _opened_reader(self) -> SourceReader[Any]:
        assert self._reader is not None, "open() comes first"
        return self._reader

    def doing(self, what: str) -> str:
        """Name of the running code in errors: a method of the reader, or a function of the strategy."""
        if what == _STRATEGY and self._watermarks is not None:
            return self._watermarks.doing
        return f"source {type(self._source).__name__}: {what}"

    def guarded(self, what: str, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call the user's code; its error becomes an `OperatorError` that names the code."""
        try:
            return call(*arguments, **named)
        except OPERATOR_ERRORS:
            raise
        except BaseException as error:
            watermarks = self._watermarks if what == _STRATEGY else None
            record = None if watermarks is None else watermarks.current_record
            raise error_at(self._context.location, self.doing(what), error, record) from error


class _LagOfReader:
    """Reads the lag of a reader in another thread; keeps the last one when the reader is closed.

    Attributes:
        error: Error of the reader, for the task thread, which fails with it.
    """

    def __init__(self, reader: object = None) -> None:
        self._reader = reader if isinstance(reader, ReportsLag) else None
        self._last: SourceLag | None = None
        self.error: BaseException | None = None

    def now(self) -> SourceLag | None:
        reader = self._reader
        if reader is None:
            return self._last
        try:
            return _checked_lag(reader.lag())
        except BaseException as error:
            self.error = error
            return None

    def close(self) -> None:
        self._last, self._reader = self.now(), None


def _checked_lag(lag: object) -> SourceLag | None:
    if lag is None:
        return None
    if not isinstance(lag, SourceLag):
        _refuse(f"lag returned {short_repr(lag)}; return a SourceLag(...), or None for unknown")
    return lag.bounded()


def _raise(error: BaseException) -> NoReturn:
    raise error


def _isolated(polled: Polled[Any]) -> Polled[Any]:
    batch, letters = polled.batch, polled.dead_letters
    copied = None if batch is None else isolated(batch)
    return replace(polled, batch=copied, dead_letters=own_copies(letters) if letters else letters)


def _refuse(msg: str) -> NoReturn:
    raise PenstockError(msg)


def _checked(polled: Any) -> Polled[Any]:
    if not isinstance(polled, Polled):
        _refuse(f"poll returned {short_repr(polled)} of type {type(polled).__name__}; return a Polled(...)")
    batch, ready_at = polled.batch, polled.ready_at
    if isinstance(batch, RowBatch):
        _check_rows(batch)
    elif batch is not None and not isinstance(batch, ArrowBatch):
        what = f"poll returned a Polled whose batch is {short_repr(batch)} of type {type(batch).__name__}"
        _refuse(f"{what}; give Polled(RowBatch([record, ...])) or Polled(ArrowBatch(record_batch))")
    if ready_at is not None and not isinstance(ready_at, Real):
        what = f"{short_repr(ready_at)} of type {type(ready_at).__name__}"
        _refuse(f"poll returned a Polled with ready_at {what}; give seconds of context.clock.monotonic()")
    return polled


def _check_rows(batch: RowBatch) -> None:
    """Refuse iterators: reading the records once would exhaust them."""
    rows, stamps = batch.rows, batch.timestamps
    if type(rows) is not list and not hasattr(rows, "__len__"):
        what = f"poll returned a RowBatch whose rows are of type {type(rows).__name__}"
        _refuse(f"{what}, which has no length; give a list of records")
    if stamps is not None and (not hasattr(stamps, "__len__") or len(stamps) != len(rows)):
        count = f"length {len(stamps)}" if hasattr(stamps, "__len__") else f"type {type(stamps).__name__}"
        what = f"poll returned a RowBatch with rows of length {len(rows)} and timestamps of {count}"
        _refuse(f"{what}; give a list with one timestamp for each row")
