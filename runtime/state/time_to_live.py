"""Time to live of keyed state: when an entry expires, and how expired entries are found.

Each entry of a state with a TTL is saved together with a *stamp*: when it was last written (or read, if reads
refresh it). It has expired when stamp + TTL is not after now. So another TTL in the next version of a program
counts for what was saved, too.

**Visible.** Every read compares the stamp with now. Nothing of that depends on the clean-up, which only gives
memory back. Now never goes back, so what has expired once is not seen again when a clock is set back. In
event time now is the watermark, or the timestamp of the current record where that is later. The clean-up goes
by the watermark alone, because an earlier record may still come. Such a record does not shorten a life: of
two stamps the later one stays.

A snapshot says what time it was, and a restored job begins there: what has expired is not seen again after a
restore either. Where old subtasks had come to different times, event time begins with the earliest one, for
nothing may expire before its time.

**Found.** Looking through all state again and again would cost what there is, not what expires. So entries
wait in *buckets* of a 256th of the TTL, by the time when they would expire. Writing an entry again changes
its stamp and nothing else. When its bucket is due, the stamp is looked at. An entry that was refreshed moves
on to the bucket of its new time, and only one that has really expired is deleted. So an entry is looked at
once a TTL, and a sweep can't delete a key that was refreshed meanwhile.

**Cleaned.** The task sweeps some entries between two batches, whenever a bucket is due
(`runtime/operators/keyed_state_requests.py`). A snapshot finishes the work first, so it has nothing that had
expired. Deleted entries count as changed: the next checkpoint hides them in older files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappop, heappush
from math import inf
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.names import nearest_name
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.handles import SavedTime
from penstock.runtime.time.durations import Duration, as_seconds, micros_in

#: Buckets that a TTL is divided into.
_BUCKETS: Final = 256

#: What counts as using an entry.
Refresh: TypeAlias = Literal["writes", "reads_and_writes"]
TtlTime: TypeAlias = Literal["processing", "event"]


@dataclass(frozen=True)
class StateTtl:
    """The life of an entry of keyed state after its last use (Flink's `StateTtlConfig`).

    An expired entry is never seen again, and is deleted in the background. Elements of a list and entries of
    a map expire one by one.

    Attributes:
        duration: A `timedelta` or seconds; kept as seconds.
        refreshed_by: Whether reading an entry makes it live on, too. Each read is a change then, which the
            next checkpoint saves.
        time: `"processing"` goes by the clock of the machine. `"event"` goes by watermarks and timestamps.

    Raises:
        ConfigurationError: The duration is not greater than zero, or an argument has no such value.

    Example:
        >>> from penstock import StateTtl
        >>> StateTtl(90, time="event").duration
        90.0
        >>> StateTtl(0)
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: duration=0: give a finite duration longer than 0 s
    """

    duration: Duration
    refreshed_by: Refresh = "writes"
    time: TtlTime = "processing"

    def __post_init__(self) -> None:
        for name, known in (("refreshed_by", get_args(Refresh)), ("time", get_args(TtlTime))):
            value = getattr(self, name)
            if value not in known:
                hint = nearest_name(str(value), known)
                msg = f"StateTtl: {name} is {' or '.join(map(repr, known))}, not {value!r}{hint}"
                raise ConfigurationError(msg)
        micros_in("duration", self.duration)
        object.__setattr__(self, "duration", as_seconds(self.duration))

    @staticmethod
    def of(ttl: Ttl | None) -> StateTtl | None:
        """A TTL that is given as `ttl=`."""
        if ttl is None or isinstance(ttl, StateTtl):
            return ttl
        micros_in("ttl", ttl)
        return StateTtl(ttl)

    @property
    def microseconds(self) -> int:
        """The duration in microseconds."""
        return micros_in("duration", self.duration)

    def __str__(self) -> str:
        used = "write" if self.refreshed_by == "writes" else "read or write"
        return f"{timedelta(microseconds=self.microseconds)} after the last {used}, {self.time} time"


#: What users give as `ttl=`.
Ttl: TypeAlias = Duration | StateTtl


class HasTimestamp(Protocol):
    timestamp: int | None


class StateTime:
    """The time for the keyed state of one operator in one subtask, in microseconds.

    Args:
        clock: Tells processing time; `None` where no state has a TTL.

    Attributes:
        watermark: How far event time has come; `None` before the first watermark.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._latest = 0
        self.watermark: int | None = None
        self.record: HasTimestamp | None = None

    def saved(self, expired: Iterable[tuple[str, int]] = ()) -> SavedTime:
        """The time in a snapshot.

        Args:
            expired: By table, the latest stamp of entries that have expired and that the snapshot still has.
        """
        return SavedTime(self.watermark, self._latest, tuple(expired))

    def restore(self, saved: Iterable[SavedTime | None]) -> None:
        known = [time for time in saved if time is not None]
        watermarks = [time.event for time in known if time.event is not None]
        self.watermark = min(watermarks) if watermarks and len(watermarks) == len(known) else None
        self._latest = max((time.processing for time in known), default=0)

    def processing(self) -> int:
        """Now by the clock; never goes back."""
        assert self._clock is not None, "state with a TTL needs a clock"
        now = int(self._clock.now() * 1_000_000)
        if now > self._latest:
            self._latest = now
        return self._latest

    def event(self) -> int:
        """Now by the watermark and the current record.

        Raises:
            PenstockError: There is neither.
        """
        now = self.event_if_known()
        if now is None:
            msg = (
                "state with a TTL in event time was used, and the record has no timestamp: call "
                'assign_timestamps_and_watermarks(...) before key_by, or use StateTtl(..., time="processing")'
            )
            raise PenstockError(msg)
        return now

    def event_if_known(self) -> int | None:
        """Now by the watermark and the current record; `None` when there is neither."""
        stamp = None if self.record is None else self.record.timestamp
        if stamp is None or (self.watermark is not None and self.watermark > stamp):
            return self.watermark
        return stamp

    def advance(self, watermark: int) -> None:
        """Event time has come this far. Nothing expires by its end: a drained job may go on later."""
        if watermark != END_OF_TIME and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark


class Stamped(Protocol):
    def stamp_of(self, entry: Any) -> tuple[bool, int | None]:
        """Whether there is such an entry, and its stamp; `None` when it has none yet."""
        ...

    def set_stamp(self, entry: Any, stamp: int) -> None: ...

    def delete(self, entry: Any) -> None: ...


class Lifetime:
    """The TTL of one table, and the entries by the time when they may expire."""

    def __init__(self, ttl: StateTtl, time: StateTime) -> None:
        self.ttl = ttl
        self.microseconds = ttl.microseconds
        self.on_read = ttl.refreshed_by == "reads_and_writes"
        self.now = time.event if ttl.time == "event" else time.processing
        self._time = time
        self._width = max(1, self.microseconds // _BUCKETS)
        self._buckets: dict[int, list[Any]] = {}
        self._due: list[int] = []
        self._watched: dict[Any, int] = {}
        self._unstamped: list[Any] = []

    def watch(self, entry: Any, stamp: int | None) -> None:
        """An entry is new: look at it when it may have expired.

        Args:
            entry: A key, or a pair of key and second part.
            stamp: When it was last used; `None` for an entry that was saved without one. Its life begins with
                the next sweep.
        """
        if stamp is None:
            self._unstamped.append(entry)
            return
        number = (stamp + self.microseconds) // self._width
        if self._watched.get(entry, number + 1) <= number:
            return  # its bucket comes first, and is where it is looked at
        self._watched[entry] = number
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = []
            heappush(self._due, number)
        bucket.append(entry)

    def live(self, cells: Mapping[Any, tuple[int | None, Any]]) -> dict[Any, Any]:
        """The values of cells that have not expired; all of them where event time is not known yet."""
        now = self._time.event_if_known() if self.ttl.time == "event" else self._time.processing()
        oldest = -inf if now is None else now - self.microseconds
        return {name: value for name, (stamp, value) in cells.items() if stamp is None or stamp > oldest}

    def watch_all(self, entries: Iterable[tuple[Any, int | None]]) -> None:
        for entry, stamp in entries:
            self.watch(entry, stamp)

    @property
    def due_in(self) -> float | None:
        """Seconds until there is something to sweep; not above 0 when there is now, `None` for never."""
        now = self._swept_to()
        if now is None:
            return None
        if self._unstamped:
            return 0.0
        if not self._due:
            return None
        missing = (self._due[0] + 1) * self._width - now
        if self.ttl.time == "event":
            return 0.0 if missing <= 0 else None  # the watermark that brings it wakes the task
        return missing / 1_000_000

    def sweep(self, table: Stamped, most: int) -> int:
        now = self._swept_to()
        if now is None:
            return 0
        seen = self._stamp_some(table, now, most)
        while self._due and (self._due[0] + 1) * self._width <= now and seen < most:
            number = self._due[0]
            bucket = self._buckets[number]
            while bucket and seen < most:
                seen += 1
                self._look_at(table, bucket.pop(), number, now)
            if not bucket:
                heappop(self._due)
                del self._buckets[number]
        return seen

    def sweep_all(self, table: Stamped) -> None:
        """Delete everything that has expired by now, also of the bucket that is not yet over."""
        now = self._swept_to()
        if now is None:
            return
        while self.sweep(table, 1 << 20):
            pass
        if self._due and self._due[0] * self._width <= now:
            number = self._due[0]
            waiting, self._buckets[number] = self._buckets[number], []
            for entry in waiting:
                self._look_at(table, entry, number, now)

    def _look_at(self, table: Stamped, entry: Any, number: int, now: int) -> None:
        if self._watched.get(entry) != number:
            return  # it is in an earlier bucket, too
        del self._watched[entry]
        is_there, stamp = table.stamp_of(entry)
        if not is_there:
            return
        if stamp is None or stamp + self.microseconds > now:
            self.watch(entry, stamp)
        else:
            table.delete(entry)

    def _stamp_some(self, table: Stamped, now: int, most: int) -> int:
        """Begin the lives of entries that were saved without stamps."""
        seen = 0
        while self._unstamped and seen < most:
            seen += 1
            entry = self._unstamped.pop()
            is_there, stamp = table.stamp_of(entry)
            if is_there:
                if stamp is None:
                    table.set_stamp(entry, now)
                self.watch(entry, now if stamp is None else stamp)
        return seen

    def _swept_to(self) -> int | None:
        return self._time.watermark if self.ttl.time == "event" else self._time.processing()
