"""`SourceWatermarks`: event time of one source subtask, which is the event time of its slowest split.

Records of two splits have no common order. If the newest timestamp of both splits made the watermark, the
records of the slower split would be late. So each split has a watermark, and the subtask's watermark is the
lowest of these (Flink: `WatermarkOutputMultiplexer`).

* A split counts from the moment that the reader has it. Before its first record it has no watermark and holds
  back the others.
* A split that waits for its turn counts as well. Idleness does not apply to it.
* An idle split does not count until its next record. If it is then behind the others, the subtask's watermark
  waits for it.
* A split that has been read to its end no longer counts once its last watermark has been merged.
* When all splits are idle, the subtask is idle. Its watermark is the highest of all splits, including ended
  splits. So it does not depend on which split became idle or ended first. `WatermarkValve` has the same rule
  between channels.
* A subtask without splits keeps its watermark. With idleness it becomes idle, and its watermark advances to
  the highest of its ended splits. It stays idle until it gets more splits.

A reader that does not report its splits is treated as one split. As in Flink, snapshots do not hold splits'
watermarks: the first batch of a restored split sets its watermark again.

**`SourceAlignment`** keeps one source subtask from running far ahead of the others of its group. If sources
are joined or windowed together, the records of a faster source would pile up in state.

Each subtask reports its watermark to the JobMaster periodically (`WatermarkReported`). The answer is the
limit up to which it may read: the group's lowest watermark plus the subtask's drift (`WatermarksAligned`). A
subtask beyond the limit reads nothing until another answer allows it. A reader that pauses splits still reads
its other splits. Flink's coordinators announce the limit on a timer. Here the JobMaster needs no timer, and
the next report replaces a lost answer.

Alignment never stops a source permanently:

* The slowest subtask of a group is within its own drift, so it reads. A paused subtask continues reporting.
* A subtask that is idle or has ended reports that, and no longer counts. The JobMaster forgets the reports of
  failed subtasks. A subtask that has not reported yet does not count either.
* A subtask without a watermark holds back the others, as it holds back event time. It is never paused itself.
  If it has nothing to read, idleness lets the others continue.
* Barriers don't wait: a source takes barriers even while it is paused and does not poll.

Snapshots do not hold pauses. A source may exceed its drift by the records that it reads between a report and
the answer, or while another subtask is being restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.runtime.operators.event_time import Timestamper, WatermarkProgress
from penstock.runtime.operators.functions.function_operator import check_function
from penstock.runtime.operators.source import Polled, SplitProgress
from penstock.runtime.operators.user_code.failure import CurrentRecord, RecordCursor
from penstock.runtime.record.elements import StreamStatus, Watermark
from penstock.runtime.time.watermarks import IdlenessTimer, WatermarkAlignment, WatermarkStrategy
from penstock.runtime.user_location import function_location


@dataclass(frozen=True, slots=True)
class WatermarkReported:
    """Progress of a source subtask; the JobMaster answers with `WatermarksAligned`.

    Attributes:
        number: Number of the report in this subtask and attempt, starting at 1. Reports may overtake each
            other.
        reached: Watermark in microseconds; `None` before the first one.
        counts: Whether the others wait for this subtask: it is neither idle nor at its end.
    """

    number: int
    reached: int | None
    counts: bool


@dataclass(frozen=True, slots=True)
class WatermarksAligned:
    """Limit up to which a source subtask may read; `None` while a subtask of its group has no watermark."""

    number: int
    allowed: int | None


class SourceAlignment:
    """The alignment of one source subtask; the module's docstring explains it.

    Example:
        >>> sent = []
        >>> alignment = SourceAlignment(WatermarkAlignment("all", 10, 0.5), sent.append)
        >>> alignment.tick(0.0, 5, counts=True)
        >>> alignment.aligned(WatermarksAligned(1, 15))
        >>> alignment.is_ahead(15), alignment.is_ahead(16), alignment.due_at
        (False, True, 0.5)
    """

    def __init__(self, settings: WatermarkAlignment, send: Callable[[WatermarkReported], None]) -> None:
        self._interval = settings.interval
        self._send = send
        self._number = 0
        self._answered = 0
        self._has_limit = False
        self._allowed: int | None = None
        self._reported: int | None = None
        self.due_at = 0.0

    def is_ahead(self, reached: int | None) -> bool:
        if reached is None or not self._has_limit:
            return False
        return self._allowed is None or reached > self._allowed

    def tick(self, now: float, reached: int | None, *, counts: bool) -> None:
        """Send a report if one is due; `now` is in seconds on the clock of `InputTime`."""
        if now >= self.due_at:
            self.due_at = now + self._interval
            self.report(reached, counts=counts)

    def advanced(self, reached: int | None) -> None:
        if self.is_ahead(reached) and reached != self._reported:
            self.report(reached, counts=True)

    def report(self, reached: int | None, *, counts: bool) -> None:
        self._number += 1
        self._reported = reached
        self._send(WatermarkReported(self._number, reached, counts))

    def aligned(self, answer: WatermarksAligned) -> None:
        if answer.number > self._answered:
            self._answered = answer.number
            self._has_limit = True
            self._allowed = answer.allowed


#: The only split of a reader that does not report its splits.
_ALL: Final = SplitProgress((None,))

_NONE: Final = SplitProgress(())


@dataclass(frozen=True, slots=True)
class TimeChange:
    """Changes in event time; `ACTIVE` belongs before a poll's records, `IDLE` after the watermark."""

    watermark: Watermark | None = None
    status: StreamStatus | None = None


NO_CHANGE: Final = TimeChange()


class SourceWatermarks:
    """Follows the splits of one reader; the module's docstring has the rules.

    Attributes:
        pauses_splits: Whether the reader pauses single splits; without that the whole reader waits.
    """

    def __init__(self, strategy: WatermarkStrategy[Any]) -> None:
        self._strategy = strategy
        self._cursor = RecordCursor()
        self.timestamper = Timestamper(strategy, self._cursor)
        self._splits: dict[Hashable, WatermarkProgress] = {}
        self._known = _NONE
        self._at_work: WatermarkProgress | None = None
        self._making = ""
        self._without_splits = None if strategy.idle_after is None else IdlenessTimer(strategy.idle_after)
        self._reached: int | None = None
        self._highest: int | None = None
        self._emitted: int | None = None
        self._is_idle = False
        self._was_idle = False
        self._alignment: SourceAlignment | None = None
        self.pauses_splits = False

    def align(self, send: Callable[[WatermarkReported], None]) -> None:
        settings = self._strategy.alignment
        if settings is not None:
            self._alignment = SourceAlignment(settings, send)

    def aligned(self, answer: WatermarksAligned) -> None:
        if self._alignment is not None:
            for name in self.ahead:
                self._splits[name].hold()
            self._alignment.aligned(answer)

    @property
    def is_paused(self) -> bool:
        alignment = self._alignment
        if alignment is None or self._is_idle:
            return False
        if self.pauses_splits:
            return bool(self._splits) and len(self.ahead) == len(self._splits)
        return alignment.is_ahead(self._reached)

    @property
    def holds_reader(self) -> bool:
        """Whether to stop polling the reader; a reader that can pause single splits is always polled."""
        return not self.pauses_splits and self.is_paused

    @property
    def ahead(self) -> frozenset[Hashable]:
        """Splits that are paused because they are ahead; all or none if the reader can't pause splits."""
        alignment = self._alignment
        if alignment is None:
            return frozenset()
        if self.pauses_splits and self._known.has_waiting:
            return frozenset()  # splits that wait for their turn would never start
        if not self.pauses_splits:
            return frozenset(self._splits) if self.is_paused else frozenset()
        return frozenset(name for name, split in self._splits.items() if alignment.is_ahead(split.reached))

    @property
    def doing(self) -> str:
        at_work = self._at_work
        return self._making or (at_work.doing if at_work is not None else "") or self.timestamper.doing

    @property
    def current_record(self) -> CurrentRecord | None:
        return self._cursor.current

    def open(self, progress: SplitProgress | None) -> None:
        """Begin with the splits of a new reader; `None` if it does not report them."""
        if self._strategy.timestamp_assigner is not None:
            check_function("timestamp", self._strategy.timestamp_assigner)
        self._known = _ALL if progress is None else progress
        self._begin(self._known)

    def polled(self, polled: Polled[Any], progress: SplitProgress | None) -> tuple[Polled[Any], TimeChange]:
        """Process a poll; return its records with timestamps, and the changes in event time.

        An error of the user's code passes through; `doing` names the code.
        """
        now = _ALL if progress is None else progress
        if polled.batch is not None and len(polled.batch):
            polled = self._observe(polled, has_splits=progress is not None)
        elif now is self._known and not polled.finished:
            return polled, NO_CHANGE  # no record, and no split has begun or ended
        self._begin(now)
        self._merge(now)
        self._end(_NONE if polled.finished else now)
        self._merge(now)
        if self._alignment is not None:
            if polled.finished:
                self._alignment.report(self._reached, counts=False)
            elif self.is_paused:
                self._alignment.advanced(self._reached)
        return polled, self._changed()

    @property
    def tick_at(self) -> float | None:
        ahead = self.ahead
        times = [split.tick_at for name, split in self._splits.items() if name not in ahead]
        if not self._splits and self._without_splits is not None:
            times = [self._without_splits.due_at]
        if self._alignment is not None:
            times.append(self._alignment.due_at)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> TimeChange:
        ahead = self.ahead
        for name, split in self._splits.items():
            at = split.tick_at
            if name in ahead:
                split.hold()
            elif at is not None and at <= now:
                self._at_work = split
                split.tick(now)
        if not self._splits and self._without_splits is not None:
            self._without_splits.ask(now)
        self._merge(self._known)
        if self._alignment is not None:
            self._alignment.tick(now, self._reached, counts=not self._is_idle)
        return self._changed()

    def _observe(self, polled: Polled[Any], *, has_splits: bool) -> Polled[Any]:
        assert polled.batch is not None, "only records are observed"
        split = polled.split if has_splits else None
        self._at_work = None
        stamped = self.timestamper.stamped(polled.batch)
        self._at_work = self._splits.get(split) or self._add(split)
        self._at_work.observe(stamped)
        return replace(polled, batch=stamped.batch)

    def _begin(self, progress: SplitProgress) -> None:
        for split in progress.reading:
            if split not in self._splits:
                self._add(split)

    def _add(self, split: Hashable) -> WatermarkProgress:
        named_by = self._strategy.named_by
        self._making = "" if named_by is None else f"watermark generator {function_location(named_by)}"
        added = self._splits[split] = WatermarkProgress(self._strategy, self._cursor)
        self._making = ""
        return added

    def _end(self, progress: SplitProgress) -> None:
        self._known = progress
        remaining = set(progress.reading)
        for split in [split for split in self._splits if split not in remaining]:
            del self._splits[split]
        if self._splits and self._without_splits is not None:
            self._without_splits.activity()

    def _merge(self, progress: SplitProgress) -> None:
        splits = self._splits.values()
        reached = [split.reached for split in splits if split.reached is not None]
        if reached:
            self._highest = max(reached) if self._highest is None else max(self._highest, *reached)
        if progress.has_waiting:
            self._is_idle = False
            return
        if splits:
            active = [split.reached for split in splits if not split.is_idle]
            self._is_idle = not active
        else:
            self._is_idle = self._without_splits is not None and self._without_splits.is_idle
            active = [None]
        if self._is_idle:
            self._advance_to(self._highest)
        elif None not in active:
            self._advance_to(min(at for at in active if at is not None))

    def _advance_to(self, reached: int | None) -> None:
        if reached is not None and (self._reached is None or reached > self._reached):
            self._reached = reached

    def _changed(self) -> TimeChange:
        watermark = status = None
        if self._reached is not None and self._reached != self._emitted:
            self._emitted = self._reached
            watermark = Watermark(self._reached)
        if self._is_idle is not self._was_idle:
            self._was_idle = self._is_idle
            status = StreamStatus.IDLE if self._is_idle else StreamStatus.ACTIVE
        if watermark is None and status is None:
            return NO_CHANGE
        return TimeChange(watermark, status)
