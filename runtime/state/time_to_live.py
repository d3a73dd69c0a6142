"""Time to live of keyed state: expiry of entries, and the search for expired entries.

Each entry of a state with a TTL is saved with a *stamp*: the time of its last use. Every write is a use, and
so is a read if reads refresh. An entry has expired when stamp + TTL is not after now. So a changed TTL in the
next version of a program also applies to saved entries.

**Hidden.** Every read compares the stamp with the current time; the clean-up only frees memory. Processing
time never goes back, so an expired entry stays hidden when a clock is set back. The current event time is the
watermark, or the timestamp of the current record if that is later. The clean-up uses the watermark alone,
because an earlier record may still come. A write keeps the old stamp if that is later.

A snapshot records its time, and a restored job begins at that time, so expired entries stay hidden. If old
subtasks had reached different times, event time begins with the earliest, because no entry may expire early.

**Found.** The cost of scans would depend on the size of the state, not on the number of expired entries. So
entries on the heap wait in *buckets* by time of expiry; a bucket spans a 256th of the TTL. Writing an entry
again changes only its stamp, which is checked when the bucket is due. A refreshed entry then moves to the
bucket of its new time. So an entry is checked once per TTL, and a sweep can't delete a refreshed entry.
Entries in RocksDB are scanned (`ScannedLifetime`).

**Deleted.** The task sweeps some entries between two batches, whenever a bucket is due
(`runtime/operators/keyed_state_requests.py`). A snapshot of the heap first completes the sweep, so it has no
expired entries. Deleted entries count as changed: the next checkpoint records their deletion, so a restore
ignores them in older files.
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

#: Number of buckets that a TTL is divided into.
_BUCKETS: Final = 256

#: Accesses that count as use of an entry.
Refresh: TypeAlias = Literal["writes", "reads_and_writes"]
TtlTime: TypeAlias = Literal["processing", "event"]


@dataclass(frozen=True)
class StateTtl:
    """Time to live of an entry of keyed state after its last use (Flink's `StateTtlConfig`).

    An expired entry is never returned, and is deleted in the background. Elements of a list and entries of
    a map expire one by one.

    Attributes:
        duration: A `timedelta` or seconds; kept as seconds.
        refreshed_by: Accesses that extend the life of an entry. With `"reads_and_writes"` each read is a
            change that the next checkpoint saves.
        time: `"processing"` uses the clock of the machine, `"event"` uses watermarks and timestamps.

    Raises:
        ConfigurationError: The duration is not greater than zero, or an argument is invalid.

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
        """Make a `StateTtl` from the argument `ttl=`."""
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


#: Types of the argument `ttl=`.
Ttl: TypeAlias = Duration | StateTtl


class HasTimestamp(Protocol):
    timestamp: int | None


class StateTime:
    """The time for the keyed state of one operator in one subtask, in microseconds.

    Attributes:
        watermark: The current watermark; `None` before the first one.
    """

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._latest = 0
        self.watermark: int | None = None
        self.record: HasTimestamp | None = None

    def saved(self, expired: Iterable[tuple[str, int]] = ()) -> SavedTime:
        """Return the time for a snapshot; `expired` has the latest stamp of its expired entries by table."""
        return SavedTime(self.watermark, self._latest, tuple(expired))

    def restore(self, saved: Iterable[SavedTime | None]) -> None:
        known = [time for time in saved if time is not None]
        watermarks = [time.event for time in known if time.event is not None]
        self.watermark = min(watermarks) if watermarks and len(watermarks) == len(known) else None
        self._latest = max((time.processing for time in known), default=0)

    def processing(self) -> int:
        """Return the clock's time; never goes back."""
        assert self._clock is not None, "state with a TTL needs a clock"
        now = int(self._clock.now() * 1_000_000)
        if now > self._latest:
            self._latest = now
        return self._latest

    def event(self) -> int:
        """Return `event_if_known`; raises `PenstockError` when it is `None`."""
        now = self.event_if_known()
        if now is None:
            msg = (
                "state with a TTL in event time was used, but the record has no timestamp: call "
                'assign_timestamps_and_watermarks(...) before key_by, or use StateTtl(..., time="processing")'
            )
            raise PenstockError(msg)
        return now

    def event_if_known(self) -> int | None:
        """Return the later of the watermark and the record's timestamp; `None` when there is neither."""
        stamp = None if self.record is None else self.record.timestamp
        if stamp is None or (self.watermark is not None and self.watermark > stamp):
            return self.watermark
        return stamp

    def advance(self, watermark: int) -> None:
        """Advance event time. `END_OF_TIME` expires no entry, because a drained job may be continued."""
        if watermark != END_OF_TIME and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark


class HasCells(Protocol):
    """A table whose entries are cells: stamp and value; the stamp may still be `None`."""

    def cell_of(self, entry: Any) -> tuple[int | None, Any] | None: ...

    def put(self, entry: Any, cell: tuple[int | None, Any]) -> None: ...

    def delete(self, entry: Any) -> None: ...


class Lifetime:
    """The TTL of one table, and its entries by earliest time of expiry."""

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
        """Add a new entry, to be checked when it may have expired.

        The TTL of an entry that was saved without a stamp begins with the next sweep.
        """
        if stamp is None:
            self._unstamped.append(entry)
            return
        number = (stamp + self.microseconds) // self._width
        if self._watched.get(entry, number + 1) <= number:
            return  # its earlier bucket checks it first
        self._watched[entry] = number
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = []
            heappush(self._due, number)
        bucket.append(entry)

    def live(self, cells: Mapping[Any, tuple[int | None, Any]]) -> dict[Any, Any]:
        """Return the values of cells that have not expired; all values while event time is unknown."""
        now = self._time.event_if_known() if self.ttl.time == "event" else self._time.processing()
        oldest = -inf if now is None else now - self.microseconds
        return {name: value for name, (stamp, value) in cells.items() if stamp is None or stamp > oldest}

    def watch_all(self, entries: Iterable[tuple[Any, int | None]]) -> None:
        for entry, stamp in entries:
            self.watch(entry, stamp)

    @property
    def due_in(self) -> float | None:
        """Seconds until a sweep has work; at most 0 when it has work now.

        `None` if it has work only after the watermark advances, or never.
        """
        now = self._sweep_time()
        due = None if now is None else self._due_at(now)
        if now is None or due is None:
            return None
        if self.ttl.time == "event":
            return 0.0 if due <= now else None  # the watermark that makes it due wakes the task
        return (due - now) / 1_000_000

    def _due_at(self, now: int) -> int | None:
        if self._unstamped:
            return now
        return (self._due[0] + 1) * self._width if self._due else None

    def sweep(self, table: HasCells, most: int) -> int:
        now = self._sweep_time()
        if now is None:
            return 0
        seen = self._stamp_unstamped(table, now, most)
        while self._due and (self._due[0] + 1) * self._width <= now and seen < most:
            number = self._due[0]
            bucket = self._buckets[number]
            while bucket and seen < most:
                seen += 1
                self._check_entry(table, bucket.pop(), number, now)
            if not bucket:
                heappop(self._due)
                del self._buckets[number]
        return seen

    def sweep_all(self, table: HasCells) -> None:
        """Delete all expired entries, including those in the bucket that has not ended yet."""
        now = self._sweep_time()
        if now is None:
            return
        while self.sweep(table, 1 << 20):
            pass
        if self._due and self._due[0] * self._width <= now:
            number = self._due[0]
            waiting, self._buckets[number] = self._buckets[number], []
            for entry in waiting:
                self._check_entry(table, entry, number, now)

    def _check_entry(self, table: HasCells, entry: Any, number: int, now: int) -> None:
        if self._watched.get(entry) != number:
            return  # it is in an earlier bucket, too
        del self._watched[entry]
        cell = table.cell_of(entry)
        if cell is None:
            return
        if cell[0] is None or cell[0] + self.microseconds > now:
            self.watch(entry, cell[0])
        else:
            table.delete(entry)

    def _stamp_unstamped(self, table: HasCells, now: int, most: int) -> int:
        """Stamp entries that were saved without stamps: their TTL begins now."""
        seen = 0
        while self._unstamped and seen < most:
            seen += 1
            entry = self._unstamped.pop()
            cell = table.cell_of(entry)
            if cell is not None:
                if cell[0] is None:
                    table.put(entry, (now, cell[1]))
                self.watch(entry, now if cell[0] is None else cell[0])
        return seen

    def _sweep_time(self) -> int | None:
        return self._time.watermark if self.ttl.time == "event" else self._time.processing()
