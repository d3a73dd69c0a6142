"""Time to live of keyed state in columns; applies the rules of `time_to_live.py` to whole arrays.

A column of the table holds each key's *stamp*, the time of its last use. Operators report uses with the time
of each row, and ask whether a key has expired at the time of a row. So an expired key is hidden at once, and
the sweep only frees memory.

**Lives.** Rows of a key may lie further apart than the TTL, even within one batch. Then the key has several
lives in the batch, one after the other. `lives` numbers them: 0 is the life that is already in the state, if
any. So a row's result does not depend on how rows are cut into batches. If every row counts as a use, the
first row a TTL or more after the latest time so far begins a new life. This latest time is a running
maximum within each key, computed for all keys at once. For that, times are replaced by their ranks, and each
key's ranks are shifted above the ranks of the keys before it.

**Sweep.** The sweep scans all stamps, which costs a millisecond for a million keys. It scans when the
earliest stamp may have expired, and at most 256 times in a TTL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.state.time_to_live import StateTime, StateTtl
from penstock.runtime.state.typed_columns import GrowingColumn, Slots

if TYPE_CHECKING:
    from penstock.runtime.state.column_table import ColumnTable

#: Times in microseconds.
Moments = NDArray[np.int64]

#: Maximum number of scans per TTL.
_SCANS: Final = 256
#: Earlier than every stamp; its sum with a TTL fits into 64 bits.
_NEVER: Final = -(1 << 62)


class ColumnLifetime:
    """The TTL of one table in columns.

    Stamps of the other kind of time are in another column. So keys that were saved without a TTL, or with a
    TTL of the other kind of time, have no stamp. They get one at their next use or at the next scan.
    """

    def __init__(self, ttl: StateTtl, time: StateTime, table: ColumnTable) -> None:
        self.ttl = ttl
        self._table = table
        self._time = time
        self._name = f":used:{ttl.time}"
        self._microseconds = ttl.microseconds
        self._scan_at: int | None = _NEVER  # restored keys have not been scanned yet
        self._waiting: Slots = np.empty(0, np.int64)

    @property
    def _stamps(self) -> GrowingColumn:
        return self._table.column(self._name, pa.int64())

    def moments(self, count: int, timestamps: Sequence[int] | pa.Array | None) -> Moments:
        """The time of each row of a batch; raises `PenstockError` if event time is unknown."""
        if self.ttl.time == "processing":
            return np.full(count, self._time.processing(), np.int64)
        if timestamps is None:
            return np.full(count, self._time.event(), np.int64)
        moments = np.asarray(timestamps, np.int64)
        watermark = self._time.watermark
        return moments if watermark is None else np.maximum(moments, watermark)

    def have_expired(self, slots: Slots, moments: Moments) -> NDArray[np.bool_]:
        """Whether each key had expired at the time of its row; false for a key without a stamp."""
        stamps = self._stamps
        ends = stamps.values.take(slots)
        ends += self._microseconds
        expired: NDArray[np.bool_] = ends <= moments
        expired &= stamps.valid.take(slots)
        return expired

    def use(self, slots: Slots, moments: Moments) -> None:
        """Note uses; a slot may occur several times. A stamp never moves backwards."""
        stamps = self._stamps
        new = slots[~stamps.valid.take(slots)]
        stamps.values[new], stamps.valid[new] = _NEVER, True
        np.maximum.at(stamps.values, slots, moments)
        self._table.note_changed(slots)
        if len(slots):
            end = int(moments.min()) + self._microseconds
            self._scan_at = end if self._scan_at is None else min(self._scan_at, end)

    def forget(self, slots: Slots) -> None:
        """Begin new lives: the next use sets a stamp even to an earlier time."""
        self._stamps.valid[slots] = False

    def lives(self, slots: Slots, moments: Moments) -> NDArray[np.int64] | None:
        """The number of each row's life in this batch, if every row is a use; `None` if all are 0."""
        if not len(slots):
            return None
        spread = int(moments.max()) - int(moments.min())
        if spread < self._microseconds and not self.have_expired(slots, moments).any():
            return None
        return self._lives(slots, moments)

    def _lives(self, slots: Slots, moments: Moments) -> NDArray[np.int64]:
        known = np.unique(slots)
        stamps = self._stamps
        before = np.where(stamps.valid[known], stamps.values[known], _NEVER)
        # The stamp of each key comes before its rows.
        all_slots, times = np.concatenate((known, slots)), np.concatenate((before, moments))
        order = np.argsort(all_slots, kind="stable")
        ordered, times = all_slots[order], times[order]
        is_stamp = order < len(known)
        key = np.cumsum(is_stamp) - 1
        ranked, ranks = np.unique(times, return_inverse=True)
        latest = ranked[np.maximum.accumulate(key * len(ranked) + ranks) - key * len(ranked)]
        begins = np.zeros(len(ordered), np.bool_)
        begins[1:] = ~is_stamp[1:] & (latest[:-1] != _NEVER)
        begins[1:] &= latest[:-1] + self._microseconds <= times[1:]
        number = np.cumsum(begins)
        number = number - number[is_stamp][key]
        lives = np.empty(len(slots), np.int64)
        lives[order[~is_stamp] - len(known)] = number[~is_stamp]
        return lives

    # -- the sweep ---------------------------------------------------------------------------------------

    @property
    def due_in(self) -> float | None:
        """Seconds until a sweep has work; 0 when it has work now.

        `None` if it has work only after the watermark advances, or never.
        """
        now = self._sweep_time()
        if now is None or not len(self._table):
            return None
        if len(self._waiting):
            return 0.0
        if self._scan_at is None:
            return None
        if self.ttl.time == "event":
            return 0.0 if self._scan_at <= now else None  # the watermark that makes it due wakes the task
        return max(0.0, (self._scan_at - now) / 1_000_000)

    def sweep(self, table: ColumnTable, most: int) -> int:
        """Delete at most `most` expired keys; return their number."""
        now = self._sweep_time()
        if now is None:
            return 0
        if not len(self._waiting) and self._scan_at is not None and self._scan_at <= now:
            self._scan(now)
        some, self._waiting = self._waiting[:most], self._waiting[most:]
        # A key may have been used since the scan.
        some = some[self.have_expired(some, np.full(len(some), now))]
        table.delete(some)
        return len(some)

    def sweep_all(self, table: ColumnTable) -> None:
        """Delete all expired keys, for a snapshot."""
        now = self._sweep_time()
        if now is None:
            return
        self._scan(now)
        self.sweep(table, len(self._waiting))

    def _scan(self, now: int) -> None:
        slots, stamps = self._table.all_slots, self._stamps
        unstamped = slots[~stamps.valid[slots]]
        stamps.values[unstamped], stamps.valid[unstamped] = now, True
        self._table.note_changed(unstamped)
        ends = stamps.values[slots] + self._microseconds
        self._waiting = slots[ends <= now]
        alive = ends[ends > now]
        pause = max(1, self._microseconds // _SCANS)
        self._scan_at = max(int(alive.min()), now + pause) if len(alive) else None

    def _sweep_time(self) -> int | None:
        return self._time.watermark if self.ttl.time == "event" else self._time.processing()
