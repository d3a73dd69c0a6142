"""`SourceHarness`: the reader of a source in one subtask, without a cluster.

The harness runs the same code as a job. Splits are assigned, the reader's snapshot goes through the value
codec, and splits of old subtasks are redistributed. Only `advance` and polls without records advance time.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from penstock.runtime.errors import OperatorLocation
from penstock.runtime.names import NearestMembers, NearestNames, checked_keywords
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.source import DeadLetter, Polled, Source
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.source_watermarks import TimeChange
from penstock.runtime.record.elements import StreamStatus
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.key_groups import redistribute
from penstock.runtime.testing.harness_state import HarnessSnapshot, connector_of, encoded_lists
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.time.watermarks import WatermarkStrategy


class SourceHarness(NearestMembers, metaclass=NearestNames):
    """Reads a source step by step.

    If a source assigns splits on request, its reader gets its whole share at once. With `on_request` it gets
    none: its requests are in `events`, and `handle_event` replaces the enumerator.

    Args:
        restored: Snapshots of all old subtasks, by index; the harness takes its share of their splits.
        watermarks: The strategy that the source has in the job.
        on_request: Whether splits come by `handle_event`, if the source has an enumerator.

    Attributes:
        events: All events that the reader has sent to its enumerator so far.
        watermarks: Timestamps of all watermarks of the subtask, in microseconds.
        is_idle: Whether the subtask is idle.
        is_finished: Whether all splits are read.
        dead_letters: Records that could not be read, so far.

    Raises:
        OperatorError: The reader failed; all calls raise this.

    Example:
        >>> from penstock import CollectionSource
        >>> with SourceHarness(CollectionSource("abcd")) as harness:
        ...     first, snapshot = harness.poll(3), harness.snapshot()
        >>> with SourceHarness(CollectionSource("abcd"), restored=[snapshot]) as harness:
        ...     first, harness.read_all()
        (['a', 'b', 'c'], ['d'])
    """

    def __init__(
        self,
        source: Source[Any],
        *,
        job_id: str = "harness",
        operator_id: str = "source",
        subtask: int = 0,
        parallelism: int = 1,
        restored: Sequence[HarnessSnapshot] = (),
        attempt: int = 1,
        clock: ManualClock | None = None,
        watermarks: WatermarkStrategy[Any] | None = None,
        on_request: bool = False,
    ) -> None:
        self.clock = clock or ManualClock()
        self.is_finished = False
        self.dead_letters: list[DeadLetter] = []
        self._codec = ValueCodec()
        self._last_id = max((snapshot.checkpoint_id for snapshot in restored), default=0)
        self._operator = SourceOperator(source, watermarks)
        self.watermarks: tuple[int, ...] = ()
        self.is_idle = False
        location = OperatorLocation(operator_id, subtask, parallelism)
        lists = redistribute([snapshot.lists for snapshot in restored], parallelism)[subtask]
        context = OperatorContext(
            location,
            connector_of(location, attempt, self.clock, job_id),
            restored={name: [self._codec.loads(atom) for atom in atoms] for name, atoms in lists.items()},
            is_restored=bool(restored),
        )
        self.events: list[Any] = []
        is_fresh = not restored and not on_request
        fresh = list(source.splits(parallelism))[subtask::parallelism] if is_fresh else ()
        self._operator.open(context, fresh, self.events.append if on_request else None)

    @property
    def reader(self) -> Any:
        """The source's reader; with `on_request` the reader of the current assignment, or `None`."""
        return self._operator.reader

    @property
    def mark(self) -> int | None:
        """The checkpoint whose mark follows the records of the last `poll`; `None` for none."""
        return self._operator.mark

    @checked_keywords
    def poll(self, max_rows: int = 1_000) -> list[Any]:
        """Poll once for about `max_rows` records, and return them; the list may be empty."""
        if self.is_finished:
            return []
        polled: Polled[Any] = self._operator.poll(max_rows)
        self._changed(self._operator.change)
        self.is_finished = polled.finished
        self.dead_letters.extend(polled.dead_letters)
        if polled.batch is None and polled.ready_at is not None:
            self.clock.advance_to(polled.ready_at)
        return [] if polled.batch is None else list(rows_of(polled.batch).rows)

    @checked_keywords
    def advance(self, duration: Duration) -> None:
        """Let time pass without a poll, and detect idle splits."""
        until = self.clock.monotonic() + seconds_in("duration", duration)
        self._changed(self._operator.tick(self.clock.monotonic()))
        while (at := self._operator.tick_at) is not None and at <= until:
            self.clock.advance_to(at)
            self._changed(self._operator.tick(self.clock.monotonic()))
        self.clock.advance_to(until)

    @checked_keywords
    def read_all(self, max_rows: int = 1_000, *, most_polls: int = 100_000) -> list[Any]:
        """Poll to the end of all splits; time advances to the reader's `ready_at` whenever it has no records.

        Args:
            max_rows: Approximate number of records of a poll.
            most_polls: Maximum number of polls before the end.

        Raises:
            AssertionError: The source has not reached its end.
        """
        rows: list[Any] = []
        for _ in range(most_polls):
            if self.is_finished:
                return rows
            rows += self.poll(max_rows)
        assert self.is_finished, f"the source has not reached its end after {most_polls} polls"
        return rows

    def handle_event(self, event: Any) -> None:
        """Pass an event of the enumerator to the reader: a tuple of splits, or `None` for no more splits.

        Raises:
            CodecError: A split can't be encoded.
        """
        self._operator.handle_event(self._codec.loads(self._codec.dumps(event)))

    def snapshot(self, checkpoint_id: int | None = None) -> HarnessSnapshot:
        """The unfinished splits, positioned after the last record that `poll` returned.

        Args:
            checkpoint_id: Id greater than all earlier ids; by default the next number.

        Raises:
            CodecError: A split can't be encoded.
        """
        self._last_id = self._last_id + 1 if checkpoint_id is None else checkpoint_id
        states = self._operator.snapshot(self._last_id)
        return HarnessSnapshot(self._last_id, encoded_lists(states, self._codec))

    def complete_checkpoint(self, snapshot: HarnessSnapshot) -> None:
        """Notify the reader that a checkpoint is complete."""
        self._operator.notify_checkpoint_complete(snapshot.checkpoint_id)

    def statistics(self) -> OperatorStatistics:
        """Counters of records that were read, skipped or emitted as dead letters, with metrics and lag."""
        return self._operator.statistics()

    def close(self) -> None:
        """Close the reader."""
        self._operator.close()

    def _changed(self, change: TimeChange) -> None:
        if change.watermark is not None:
            self.watermarks = (*self.watermarks, change.watermark.timestamp)
        if change.status is not None:
            self.is_idle = change.status is StreamStatus.IDLE

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
