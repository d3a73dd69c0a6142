"""`RequestedSplits`: the reader of a source whose splits come from its coordinator.

It reads an assignment with the source's own reader, and requests more splits when the assignment ends. Splits
that arrive meanwhile go to a reader that `AddsSplits`. Otherwise they wait, and every snapshot lists them
after the splits that are being read.

`EndedReaders` keeps readers whose splits have ended, because these may follow checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators import ExternallyInducedReader
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.source import (
    AddsSplits,
    ConnectorContext,
    FollowsCheckpoints,
    PausesSplits,
    Polled,
    ReportsLag,
    ReportsSplits,
    Source,
    SourceReader,
    SplitProgress,
)
from penstock.runtime.operators.source_coordinator import NO_MORE_SPLITS, SPLIT_REQUEST
from penstock.runtime.operators.user_code.function_class import run_method

T = TypeVar("T")

#: Lag of a reader whose splits are read to their end.
NOTHING_LEFT: Final = SourceLag.of(())


def progress_within(
    part: Hashable, reader: SourceReader[Any] | None, reports: ReportsSplits | None, has_waiting: bool
) -> SplitProgress:
    """The splits of the reader of one part; their names include the part."""
    if reader is None:
        return SplitProgress((), has_waiting)
    inner = SplitProgress((None,)) if reports is None else reports.split_progress
    return SplitProgress(tuple((part, split) for split in inner.reading), has_waiting or inner.has_waiting)


class RequestedSplits(Generic[T]):
    """A `SourceReader` that reads one assignment after another."""

    def __init__(
        self,
        source: Source[T],
        context: ConnectorContext,
        splits: Sequence[Any],
        send: Callable[[Any], None],
    ) -> None:
        self._source = source
        self._context = context
        self._send = send
        self._waiting: list[Any] = list(splits)
        self._reader: SourceReader[T] | None = None
        self._reports: ReportsSplits | None = None
        self._pauses: PausesSplits | None = None
        self._assignment = 0
        self._progress = SplitProgress(())
        self._is_asking = False
        self._no_more = False
        #: Lag while no reader is open: 0 before the first one, then that of the last one, `None` if unknown.
        self._lag_between: SourceLag | None = NOTHING_LEFT
        self._ended = EndedReaders()
        #: Whether the reader that was polled last makes new records.
        self.makes_new_records = False

    @property
    def reader(self) -> SourceReader[T] | None:
        """The reader of the current assignment."""
        return self._reader

    def poll(self, max_rows: int) -> Polled[T]:
        if self._reader is None and self._waiting:
            self._begin()
        if self._reader is None:
            return self._nothing()
        polled = self._reader.poll(max_rows)
        if not isinstance(polled, Polled):
            return polled
        if polled.batch is not None:
            polled = replace(polled, split=(self._assignment, polled.split))
        if not polled.finished:
            return polled
        reader = self._reader
        self._lag_between = _lag_after(reader)
        self._reader, self._pauses = None, None
        self._ended.add(reader)
        return replace(polled, finished=self._nothing().finished)

    def handle_event(self, event: Any) -> None:
        if event is NO_MORE_SPLITS:
            self._no_more = True
        elif isinstance(event, tuple):
            if isinstance(self._reader, AddsSplits):
                run_method(self._reader, "add_splits", event)
            else:
                self._waiting.extend(event)
        else:
            msg = f"the coordinator sent {event!r:.80}"
            raise TypeError(msg)
        self._is_asking = False

    def snapshot(self) -> Sequence[Any]:
        reading = [] if self._reader is None else list(self._reader.snapshot())
        return [*self._ended.snapshot(), *reading, *self._waiting]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self._ended.snapshot_taken(checkpoint_id, self._reader)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._ended.notify_checkpoint_complete(checkpoint_id, self._reader)

    @property
    def split_progress(self) -> SplitProgress:
        """Splits of the current assignment; their names include the assignment's number."""
        progress = progress_within(self._assignment, self._reader, self._reports, bool(self._waiting))
        if progress != self._progress:
            self._progress = progress
        return self._progress

    def lag(self) -> SourceLag | None:
        """The lag of the current reader; unknown while other splits wait here or with the enumerator."""
        reader = self._reader
        if reader is None:
            if self._waiting:
                return None
            return NOTHING_LEFT if self._no_more else self._lag_between
        may_get_more = not self._no_more and not isinstance(reader, AddsSplits)
        if self._waiting or may_get_more or not isinstance(reader, ReportsLag):
            return None
        return reader.lag()

    @property
    def can_pause_splits(self) -> bool:
        """Whether the reader of the current assignment pauses single splits."""
        return can_pause_splits(self._pauses)

    def pause_splits(self, paused: Set[Any]) -> None:
        if self._pauses is not None:
            mine = frozenset(split for assignment, split in paused if assignment == self._assignment)
            run_method(self._pauses, "pause_splits", mine)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            run_method(reader, "close")
        self._ended.close()

    def _begin(self) -> None:
        """Create a reader for the waiting splits."""
        reader = self._reader = self._source.reader(self._context, list(self._waiting))
        self._waiting = []
        refuse_induced(reader)
        self._reports = reader if isinstance(reader, ReportsSplits) else None
        self._pauses = reader if isinstance(reader, PausesSplits) else None
        self.makes_new_records = getattr(reader, "makes_new_records", False) is True
        self._assignment += 1

    def _nothing(self) -> Polled[T]:
        if self._waiting:
            return Polled()
        if self._no_more:
            return Polled(finished=True)
        if not self._is_asking:
            self._is_asking = True
            self._send(SPLIT_REQUEST)
        return Polled()


def _lag_after(reader: object) -> SourceLag | None:
    """The lag after a reader has read its splits; unknown without `AddsSplits`, because more may follow."""
    if not isinstance(reader, AddsSplits):
        return None
    return reader.lag() if isinstance(reader, ReportsLag) else NOTHING_LEFT


def can_pause_splits(reader: PausesSplits | None) -> bool:
    """Whether a reader pauses single splits now; for a reader that wraps others, the current one decides."""
    return reader is not None and getattr(reader, "can_pause_splits", True) is True


def refuse_induced(reader: object) -> None:
    """Refuse a reader that triggers checkpoints: its splits come from an enumerator."""
    if isinstance(reader, ExternallyInducedReader):
        msg = (
            f"{type(reader).__name__} is an ExternallyInducedReader, but its splits come from an enumerator. "
            "Such a reader would not see checkpoint marks while it waits for splits. List the splits in "
            "`splits` instead"
        )
        raise PenstockError(msg)


class EndedReaders:
    """Keeps readers open after the end of their splits, until a completed checkpoint covers them.

    Readers that do not follow checkpoints are closed at once.
    """

    def __init__(self) -> None:
        self._readers: list[SourceReader[Any]] = []
        #: The first checkpoint that covers each reader; `None` before it was taken.
        self._covered_by: list[int | None] = []

    def add(self, reader: SourceReader[Any]) -> None:
        if isinstance(reader, FollowsCheckpoints):
            self._readers.append(reader)
            self._covered_by.append(None)
        else:
            run_method(reader, "close")

    def snapshot(self) -> list[Any]:
        return [split for reader in self._readers for split in reader.snapshot()]

    def snapshot_taken(self, checkpoint_id: int, current: SourceReader[Any] | None) -> None:
        for reader in (*self._readers, current):
            if isinstance(reader, FollowsCheckpoints):
                run_method(reader, "snapshot_taken", checkpoint_id)
        self._covered_by = [checkpoint_id if first is None else first for first in self._covered_by]

    def notify_checkpoint_complete(self, checkpoint_id: int, current: SourceReader[Any] | None) -> None:
        for reader in (*self._readers, current):
            if isinstance(reader, FollowsCheckpoints):
                run_method(reader, "notify_checkpoint_complete", checkpoint_id)
        ended = list(zip(self._readers, self._covered_by, strict=True))
        left = [(reader, first) for reader, first in ended if first is None or first > checkpoint_id]
        self._readers, self._covered_by = [reader for reader, _ in left], [first for _, first in left]
        for reader, first in ended:
            if first is not None and first <= checkpoint_id:
                run_method(reader, "close")

    def close(self) -> None:
        while self._readers:
            run_method(self._readers.pop(), "close")
