"""`RowRing`: keyed rows in order of arrival, found by hash and time.

A join keeps the rows of each side until no row of the other side can match them. A row is added once, found
by key and time, flagged at most once, and deleted when event time has passed it. A hash table would look up
each row before it adds it. This class appends instead.

**Ring.** All arrays have one capacity, a power of two. The n-th row is in slot `n & mask`. Rows are deleted
roughly in the order of their arrival, so the first live row moves ahead and frees slots. A full ring is
rebuilt. The live rows move to the front, and the capacity doubles if they need more than three quarters of
it. So a row with a time far ahead, which blocks the first slot, costs rebuilds, but not unlimited memory. A
smaller ring is faster, because the first access to new memory costs more than writing a row.

**Cells.** Hash, time, previous row of the chain, and number of a row share one cell of 32 bytes. A search
reads rows in random order, so a row costs one cache miss instead of four.

**Chains.** The rows whose hashes share some bits form a chain, the newest first. A search walks the chains of
all its keys together, one row each per step. It compares hash and time in arrays. The subclass compares the
keys of the hits. A chain ends at the first row that has left the ring. A search first links the rows that
arrived since the last search. So rows that are only read by time are never linked. A step has a fixed cost,
however few keys are left, and a key may have a million rows. Then a copy of the remaining keys' rows is
faster, but making it reads the whole ring. So the walk ends when its steps have cost as much as the copy.

**Pairs.** The number of pairs from the copy is known before they are made. So a search for a limited number
can leave out the last keys. Otherwise a thousand keys with a million rows each would take all memory.

**Time.** A segment is a run of slots. For each segment the ring has the earliest time of its live rows. A
search for rows up to a moment reads only the segments that have such rows.

**Numbers.** Each new row gets the next number. In snapshots it distinguishes the rows of a key. No two live
rows of a key have the same number, even after a restore: the next number is above all restored numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.state.stable_hash import HashArray
from penstock.runtime.state.typed_columns import Slots

#: Event times in microseconds.
Moments = NDArray[np.int64]

_LEAST: Final = 1 << 10

#: Slots of a segment.
_SEGMENT: Final = 1 << 12

#: Rows of a chain that a search examines before it may copy the ring.
_LEAST_STEPS: Final = 128

#: Measured cost of a step. The unit is the cost of one row in a step, or of reading a row of the ring for the
#: copy. Sorting is not counted, because the copy has only the rows of the remaining keys.
_STEP_COST: Final = 1 << 10

#: Rows that are read together for the copy; they stay in the processor's cache.
_COPIED_AT_ONCE: Final = 1 << 14

#: Maximum number of hash bits that exclude rows from the copy.
_MOST_BITS: Final = 16

#: Maximum number of hashes that are compared with each row of the copy, instead of sorting the copy.
_FEW: Final = 12

#: Rows are sorted by chain, except rows without others in their chain, if all others are fewer than one of
#: this number.
_FEW_SHARE: Final = 4

#: Bits of the number of rows that are linked together; their chains stay in the processor's cache.
_LINKED_BITS: Final = 14
_LINKED_AT_ONCE: Final = 1 << _LINKED_BITS

_FAR: Final = np.iinfo(np.int64).max

#: Columns of the cells.
_HASH, _TIME, _PREVIOUS, _NUMBER = range(4)


class RowRing:
    """The arrays that rows of any form have in common.

    Attributes:
        times: Event time of each slot, in microseconds; undefined for slots without a live row.
    """

    #: Names of the arrays that hold a value for each slot.
    _arrays: ClassVar[tuple[str, ...]] = ("_cells", "_is_live", "_is_saved", "_is_changed")

    def __init__(self, *, tracks_changes: bool) -> None:
        self._tracks = tracks_changes
        self.clear()

    def clear(self) -> None:
        self._length = 0
        self._next_number = 0
        self._allocate(_LEAST)

    def _allocate(self, capacity: int) -> None:
        """Make the arrays of an empty ring."""
        self._mask = capacity - 1
        self._first = self._end = 0
        self._cells: NDArray[np.int64] = np.empty((capacity, 4), np.int64)
        self._hashes: HashArray = self._cells.view(np.uint64)[:, _HASH]
        self.times: Moments = self._cells[:, _TIME]
        self._previous: NDArray[np.int64] = self._cells[:, _PREVIOUS]
        self._numbers: NDArray[np.int64] = self._cells[:, _NUMBER]
        self._is_live: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        self._is_saved: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        self._is_changed: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        #: The newest row of each chain, by its position; empty before the first search.
        self._newest: NDArray[np.int64] = np.empty(0, np.int64)
        #: Rows up to this position are in chains.
        self._linked = 0
        self._earliest: Moments = np.full(max(1, capacity // _SEGMENT), _FAR, np.int64)

    def __len__(self) -> int:
        return self._length

    @property
    def all_slots(self) -> Slots:
        return np.flatnonzero(self._is_live)

    @property
    def next_number(self) -> int:
        """The number of the next row."""
        return self._next_number

    @property
    def first_number(self) -> int:
        """The number of the first live row; `next_number` without rows."""
        return int(self._numbers[self._first & self._mask]) if self._length else self._next_number

    # -- rows --------------------------------------------------------------------------------------------

    def _new_numbers(self, rows: int) -> NDArray[np.int64]:
        return np.arange(self._next_number, self._next_number + rows)

    def _put_cells(
        self,
        times: Moments,
        hashes: HashArray,
        numbers: NDArray[np.int64],
        *,
        is_changed: bool | NDArray[np.bool_],
        is_saved: bool | NDArray[np.bool_],
    ) -> list[tuple[slice, slice]]:
        """Add rows; return their slots and places in the arguments: two pairs where the ring wraps around."""
        self._make_room(len(times))
        spans = list(self._spans(len(times)))
        for at, some in spans:
            self._hashes[at], self.times[at], self._numbers[at] = hashes[some], times[some], numbers[some]
            self._is_live[at] = True
            self._is_saved[at] = is_saved if isinstance(is_saved, bool) else is_saved[some]
            self._is_changed[at] = is_changed if isinstance(is_changed, bool) else is_changed[some]
            for start in range(at.start - at.start % _SEGMENT, at.stop, _SEGMENT):
                least = self.times[max(start, at.start) : min(start + _SEGMENT, at.stop)].min(initial=_FAR)
                self._earliest[start // _SEGMENT] = min(self._earliest[start // _SEGMENT], least)
        self._end += len(times)
        self._length += len(times)
        self._next_number = max(self._next_number, int(numbers.max(initial=-1)) + 1)
        return spans

    def _spans(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """The next slots, and the rows for them; two pairs where the ring wraps around."""
        start = self._end & self._mask
        fit = min(rows, self._mask + 1 - start)
        yield slice(start, start + fit), slice(0, fit)
        if fit < rows:
            yield slice(0, rows - fit), slice(fit, rows)

    def note_changed(self, slots: Slots) -> None:
        """Report values that were changed in place; unreported changes are in no snapshot."""
        if self._tracks:
            self._is_changed[slots] = True

    def mark_all_changed(self) -> None:
        self._is_changed |= self._is_live

    def _take_changed(self) -> Slots:
        """The new and changed rows by number; afterwards they are saved and unchanged."""
        changed: Slots = np.flatnonzero(self._is_changed)
        numbers = self._numbers[changed]
        if (numbers[1:] < numbers[:-1]).any():
            changed = changed[np.argsort(numbers, kind="stable")]
        self._is_saved[changed], self._is_changed[changed] = True, False
        return changed

    def _cells_of(self, slots: Slots) -> tuple[HashArray, Moments, NDArray[np.int64]]:
        """Hashes, times and numbers of rows."""
        cells = self._cells.take(slots, axis=0)
        return cells.view(np.uint64)[:, _HASH], cells[:, _TIME].copy(), cells[:, _NUMBER].copy()

    def _delete_cells(self, slots: Slots) -> None:
        """Delete rows; each slot occurs once and is live."""
        self._is_live[slots] = self._is_changed[slots] = False
        self._length -= len(slots)
        touched = np.zeros(len(self._earliest), np.bool_)
        touched[slots // _SEGMENT] = True
        segments = np.flatnonzero(touched)
        live, times = self._segments(self._is_live, segments), self._segments(self.times, segments)
        self._earliest[segments] = np.where(live, times, _FAR).min(axis=1)
        self._move_first()

    def _move_first(self) -> None:
        """Move the first position to the next live row."""
        while self._first < self._end:
            start = self._first & self._mask
            run = self._is_live[start : min(start + self._end - self._first, self._mask + 1)]
            ahead = int(run.argmax())
            if run[ahead]:
                self._first += ahead
                return
            self._first += len(run)

    @property
    def first_time(self) -> int | None:
        """The earliest time of all rows."""
        return int(self._earliest.min()) if self._length else None

    def until(self, moment: int, most_segments: int | None = None) -> Slots:
        """The rows with times up to a moment, by time and then by arrival.

        Args:
            most_segments: Maximum number of segments that are read, those with the earliest times; `None`
                for all.
        """
        segments = np.flatnonzero(self._earliest <= moment)
        if most_segments is not None and len(segments) > most_segments:
            segments = segments[np.argsort(self._earliest[segments], kind="stable")[:most_segments]]
        live, times = self._segments(self._is_live, segments), self._segments(self.times, segments)
        found = np.flatnonzero(live & (times <= moment))
        slots: Slots = segments.take(found // _SEGMENT) * _SEGMENT + found % _SEGMENT
        moments = self.times[slots]
        if (moments[1:] > moments[:-1]).all():
            return slots
        return slots[np.lexsort((self._numbers[slots], moments))]

    def _segments(self, array: NDArray[Any], segments: Slots) -> NDArray[Any]:
        return array.reshape(len(self._earliest), -1)[segments]

    # -- search ------------------------------------------------------------------------------------------

    def _search(
        self, hashes: HashArray, earliest: Moments, latest: Moments, most: int | None = None
    ) -> tuple[Slots, Slots, int]:
        """Find the rows with the same hash and a time between two moments, both included.

        Args:
            most: About the maximum number of pairs; the last hashes are left out if there are more, but never
                the first one. `None` for all.

        Returns:
            Indices into `hashes`, the slot of each, and the number of hashes that were searched. A stable
            sort by index puts the slots of each hash in order of arrival.
        """
        if not self._length:
            return np.empty(0, np.int64), np.empty(0, np.int64), len(hashes)
        self._link_new()
        rows, positions, searched = self._walk(hashes, earliest, latest, _FAR if most is None else most)
        return rows, positions & self._mask, searched

    def _walk(
        self, hashes: HashArray, earliest: Moments, latest: Moments, most: int
    ) -> tuple[Slots, Slots, int]:
        """Walk the chains of all hashes together; return pairs of an index into `hashes` and a position.

        Each step finds a run of pairs in order of the indices. The runs of later steps come first, because
        they have older rows. A stable sort by index then only merges runs, and leaves the rows of each hash
        in order of arrival.
        """
        found_rows, found_positions = [], []
        wanted, searched = hashes.view(np.int64), len(hashes)
        rows, at = np.arange(len(hashes)), self._newest.take(self._chains(hashes))
        has_holes = self._length < self._end - self._first
        steps = cost = found = 0
        while True:
            (going,) = (at >= self._first).nonzero()
            if len(going) < len(rows):
                rows, at, wanted = rows.take(going), at.take(going), wanted.take(going)
                earliest, latest = earliest.take(going), latest.take(going)
            if not len(rows):
                break
            if steps >= _LEAST_STEPS and (cost > self._end - self._first or found > most):
                here, there, among = self._find_sorted(wanted.view(np.uint64), earliest, latest, at, most)
                searched = int(rows[among]) if among < len(rows) else searched
                by_arrival = np.argsort(there)
                found_rows.append(rows[here[by_arrival]])
                found_positions.append(there[by_arrival])
                break
            cells = self._cells.take(at & self._mask, axis=0)
            times = cells[:, _TIME]
            (hit,) = ((cells[:, _HASH] == wanted) & (times >= earliest) & (times <= latest)).nonzero()
            if has_holes:
                hit = hit[self._is_live.take(at[hit] & self._mask)]
            found_rows.append(rows.take(hit))
            found_positions.append(at.take(hit))
            at = cells[:, _PREVIOUS]
            steps, cost, found = steps + 1, cost + _STEP_COST + len(rows), found + len(hit)
        if not found_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64), searched
        all_rows, all_positions = np.concatenate(found_rows[::-1]), np.concatenate(found_positions[::-1])
        if searched < len(hashes):
            all_positions, all_rows = all_positions[all_rows < searched], all_rows[all_rows < searched]
        return all_rows, all_positions, searched

    def _find_sorted(
        self, hashes: HashArray, earliest: Moments, latest: Moments, newest: Slots, most: int
    ) -> tuple[Slots, Slots, int]:
        """Find rows up to the position `newest` of each hash, in a copy that is sorted by hash and time.

        Returns:
            Pairs of an index into `hashes` and a position, and the number of hashes that were searched. At
            least one hash is searched. Further hashes are searched up to about `most` rows.
        """
        wanted = np.unique(hashes)
        positions = self._positions_of(wanted)
        slots = positions & self._mask
        found, times = self._hashes[slots], self.times[slots]
        if len(hashes) <= _FEW:
            return _scanned((found, times, positions), hashes, earliest, latest, newest, most)
        moments = np.unique(times)
        # One number combines hash and time, so the order of numbers is the order by hash and time.
        base = np.int64(len(moments) + 1)
        numbers = np.searchsorted(wanted, found) * base + np.searchsorted(moments, times)
        order = np.argsort(numbers, kind="stable")
        numbers, positions = numbers[order], positions[order]
        of_hash = np.searchsorted(wanted, hashes) * base
        starts = np.searchsorted(numbers, of_hash + np.searchsorted(moments, earliest))
        ends = np.searchsorted(numbers, of_hash + np.searchsorted(moments, latest, side="right"))
        counts = np.maximum(ends - starts, 0)
        searched = max(1, int(np.searchsorted(np.cumsum(counts), most, side="right")))
        starts, counts = starts[:searched], counts[:searched]
        rows = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        there = positions[np.repeat(starts, counts) + within]
        older = there <= newest[rows]
        return rows[older], there[older], searched

    def _positions_of(self, wanted: HashArray) -> Slots:
        """The positions of all live rows with one of the hashes; `wanted` is sorted."""
        # Most rows have another hash, and one read of a small table says so.
        bits = min(_MOST_BITS, (16 * len(wanted)).bit_length())
        shift, low = np.uint64(16), np.uint64((1 << bits) - 1)
        is_wanted = np.zeros(1 << bits, np.bool_)
        is_wanted[(wanted >> shift) & low] = True
        parts = []
        for start in range(self._first, self._end, _COPIED_AT_ONCE):
            positions = np.arange(start, min(start + _COPIED_AT_ONCE, self._end))
            hashes = self._hashes[positions & self._mask]
            (some,) = is_wanted.take((hashes >> shift) & low).nonzero()
            hashes = hashes.take(some)
            same = wanted.take(np.searchsorted(wanted, hashes), mode="clip") == hashes
            parts.append(positions.take(some[same]))
        every = np.concatenate(parts)
        return every[self._is_live.take(every & self._mask)]

    def _chains(self, hashes: HashArray) -> Slots:
        """The chain of each hash, from higher bits than those that select the key group."""
        return (hashes >> np.uint64(16)).astype(np.int64) & (len(self._newest) - 1)

    def _link_new(self) -> None:
        """Put the rows that came since the last search into chains."""
        if not len(self._newest):
            self._newest = np.full(2 * len(self.times), -1, np.int64)
        for start in range(max(self._linked, self._first), self._end, _LINKED_AT_ONCE):
            self._link(np.arange(start, min(start + _LINKED_AT_ONCE, self._end)))
        self._linked = self._end

    def _link(self, positions: Slots) -> None:
        """Put rows at the front of their chains, in order of their positions."""
        chains = self._chains(self._hashes[positions & self._mask])
        before = self._newest.take(chains)
        self._newest[chains] = positions  # the last write wins: the chain's newest row
        (older,) = (self._newest.take(chains) != positions).nonzero()
        if _FEW_SHARE * len(older) < len(positions):
            # Few rows have a chain with other new rows. The other rows need no sort.
            self._newest[chains.take(older)] = -1
            is_alone = self._newest.take(chains) >= 0
            self._previous[positions[is_alone] & self._mask] = before[is_alone]
            (some,) = (~is_alone).nonzero()
            positions, chains, before = positions.take(some), chains.take(some), before.take(some)
            self._newest[chains] = positions
        if not len(positions):
            return
        # The low bits of each number are the row's place, so sorted numbers keep rows of a chain in order.
        numbers = chains << _LINKED_BITS | np.arange(len(positions))
        numbers.sort()
        order, chains = numbers & ((1 << _LINKED_BITS) - 1), numbers >> _LINKED_BITS
        positions = positions.take(order)
        (begins,) = (chains[1:] != chains[:-1]).nonzero()
        begins = np.append(0, begins + 1)
        previous = np.empty_like(positions)
        previous[1:] = positions[:-1]
        previous[begins] = before.take(order.take(begins))
        self._previous[positions & self._mask] = previous

    def _make_room(self, rows: int) -> None:
        capacity = self._mask + 1
        if self._end - self._first + rows <= capacity:
            return
        while 4 * (self._length + rows) > 3 * capacity:
            capacity *= 2
        self._rebuild(capacity)

    def _rebuild(self, capacity: int) -> Slots | slice:
        """Move the live rows to the first slots of new arrays with this capacity; return their old slots."""
        slots: Slots = np.arange(self._first, self._end) & self._mask
        slots = slots[self._is_live[slots]]
        old: Slots | slice = slots
        if len(slots) and slots[-1] - slots[0] == len(slots) - 1:
            old = slice(int(slots[0]), int(slots[0]) + len(slots))  # without holes, so a copy is faster
        kept = {name: getattr(self, name) for name in self._arrays}
        self._allocate(capacity)
        for name, array in kept.items():
            getattr(self, name)[: len(slots)] = array[old]
        self._end = len(slots)
        np.minimum.at(self._earliest, np.arange(self._end) // _SEGMENT, self.times[: self._end])
        return old


def _scanned(
    rows: tuple[HashArray, Moments, Slots],
    hashes: HashArray,
    earliest: Moments,
    latest: Moments,
    newest: Slots,
    most: int,
) -> tuple[Slots, Slots, int]:
    """The result of `RowRing._find_sorted`, found by comparing all rows with each hash in turn."""
    found, times, positions = rows
    hits: list[Slots] = []
    total = 0
    for place, wanted in enumerate(hashes):
        in_time = (times >= earliest[place]) & (times <= latest[place])
        hits.append(positions[(found == wanted) & in_time & (positions <= newest[place])])
        total += len(hits[-1])
        if total > most:
            break
    lengths = [len(hit) for hit in hits]
    return np.repeat(np.arange(len(hits)), lengths), np.concatenate(hits), len(hits)
