"""`RequestedSplits`: the reader of one subtask of a source whose splits come from its coordinator.

It reads what it has with the source's own reader, and asks for more when that has come to its end. Splits
that come while it reads wait for their turn; they are in every snapshot, behind the one that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from penstock.runtime.operators.protocols import (
    ConnectorContext,
    Polled,
    ReportsSplits,
    Source,
    SourceReader,
    SplitProgress,
)
from penstock.runtime.operators.sources.source_events import NoMoreSplits, SplitRequest, SplitsAssigned

T = TypeVar("T")


class RequestedSplits(Generic[T]):
    """A `SourceReader` over the readers of one assignment after the other.

    Args:
        source: Makes readers.
        splits: Restored ones.
        send: Carries events to the coordinator.
    """

    def __init__(
        self,
        source: Source[T],
        context: ConnectorContext,
        splits: Sequence[Any],
        send: Callable[[SplitRequest], None],
    ) -> None:
        self._source = source
        self._context = context
        self._send = send
        self._waiting: list[Any] = list(splits)
        self._reader: SourceReader[T] | None = None
        self._assignment = 0
        self._progress = SplitProgress(())
        self._asked = 0
        self._is_asking = False
        self._no_more = False

    @property
    def makes_new_records(self) -> bool:
        """Whether the reader that gave the last records says so."""
        return getattr(self._reader, "makes_new_records", False) is True

    def poll(self, max_rows: int) -> Polled[T]:
        """The next records of what it has; asks for more where there is nothing."""
        if self._reader is None and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._reader = self._source.reader(self._context, waiting)
            self._assignment += 1
        if self._reader is None:
            return self._nothing()
        polled = self._reader.poll(max_rows)
        if not isinstance(polled, Polled):
            return polled
        if polled.batch is not None:
            polled = replace(polled, split=(self._assignment, polled.split))
        if not polled.finished:
            return polled
        reader, self._reader = self._reader, None
        reader.close()
        return replace(polled, finished=self._nothing().finished)

    def handle_event(self, event: Any) -> None:
        """The coordinator has answered.

        Raises:
            TypeError: It is no answer.
        """
        match event:
            case SplitsAssigned(splits):
                self._is_asking = False
                self._waiting.extend(splits)
            case NoMoreSplits():
                self._is_asking = False
                self._no_more = True
            case _:
                msg = f"the coordinator sent {event!r:.80}"
                raise TypeError(msg)

    def snapshot(self) -> Sequence[Any]:
        """What is being read, and what waits."""
        reading = [] if self._reader is None else list(self._reader.snapshot())
        return [*reading, *self._waiting]

    @property
    def split_progress(self) -> SplitProgress:
        """The splits of the assignment that is being read; a name says which assignment it is."""
        reader, number = self._reader, self._assignment
        has_waiting = bool(self._waiting)
        reading: tuple[tuple[int, Hashable], ...] = ()
        if reader is not None:
            inner = reader.split_progress if isinstance(reader, ReportsSplits) else SplitProgress((None,))
            reading = tuple((number, split) for split in inner.reading)
            has_waiting = has_waiting or inner.has_waiting
        if (reading, has_waiting) != (self._progress.reading, self._progress.has_waiting):
            self._progress = SplitProgress(reading, has_waiting)
        return self._progress

    def close(self) -> None:
        """Close the reader that is at work."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _nothing(self) -> Polled[T]:
        """Nothing is being read: ask for more, unless there is no more."""
        if self._waiting:
            return Polled()
        if self._no_more:
            return Polled(finished=True)
        if not self._is_asking:
            self._is_asking = True
            self._asked += 1
            self._send(SplitRequest(self._asked))
        return Polled()
