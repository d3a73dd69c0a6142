"""`WindowState`: the open windows of one subtask, each with its trigger state, timers and contents.

A window of a key is one entry of a nested table: its key, its start and end, and a list of four parts. These
are the trigger's state by name, its timers of event time, its timers of processing time, and the contents.
The contents are missing after a purge. Deleting the entry deletes all four parts. A checkpoint writes the
windows that were touched since the last checkpoint. Its snapshot refers to the entries, so each entry is
copied before its first change after the snapshot.

The entry of a window that has become empty is deleted before the window ends. A session is the exception: it
keeps its entry until it ends, even after a purge, because later records join it.

Two indexes in memory (`TimerIndex`) hold the windows by their due times, in event time and in processing
time. A window is due at each of its timers and at the end of its life. The indexes are built from the entries
when the operator opens, so no snapshot holds them.

Many keys have the same window, so they share one item of the heap. An item whose keys were all removed stays
in the heap until it is the first. When most items are such leftovers, as with sessions, the heap is rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from penstock.runtime.state.state_table import StateTable

#: Start and end of a window: the second key of an entry of keyed state.
Span: TypeAlias = tuple[int, int]

#: Number of leftover items up to which a heap is never rebuilt.
_LEFTOVERS: Final = 1024


class TimerIndex:
    """Due times of windows: the earliest first, and at equal times the window that begins first.

    Example:
        >>> index = TimerIndex()
        >>> index.add(20, (0, 21), "ann")
        >>> index.add(10, (0, 11), "ann")
        >>> index.add(10, (0, 11), "bob")
        >>> index.remove(20, (0, 21), "ann")
        >>> index.next_at, index.pop(10), index.pop(10), index.pop(10)
        (10, (10, (0, 11), 'ann'), (10, (0, 11), 'bob'), None)
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[int, Span], dict[Any, None]] = {}
        self._heap: list[tuple[int, Span]] = []
        #: The item that is being popped, and its remaining keys, the next key last.
        self._popped: tuple[int, Span] | None = None
        self._popped_keys: list[Any] = []

    @property
    def next_at(self) -> int | None:
        heap = self._heap
        while heap and heap[0] not in self._keys:
            heappop(heap)
        return heap[0][0] if heap else None

    def add(self, at: int, window: Span, key: Any) -> None:
        item = at, window
        keys = self._keys.get(item)
        if keys is None:
            keys = self._keys[item] = {}
            heappush(self._heap, item)
        keys[key] = None

    def remove(self, at: int, window: Span, key: Any) -> None:
        item = at, window
        keys = self._keys.get(item)
        if keys is None or key not in keys:
            return
        self._take_out(item, keys, key)
        if len(self._heap) > 2 * len(self._keys) + _LEFTOVERS:
            self._heap = list(self._keys)
            heapify(self._heap)

    def pop(self, until: int) -> tuple[int, Span, Any] | None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            item = heap[0]
            keys = self._keys.get(item)
            if keys is None:
                heappop(heap)
                continue
            if item != self._popped or not self._popped_keys:
                self._popped, self._popped_keys = item, list(reversed(keys))
            key = self._popped_keys.pop()
            if key in keys:
                self._take_out(item, keys, key)
                return (*item, key)
        return None

    def _take_out(self, item: tuple[int, Span], keys: dict[Any, None], key: Any) -> None:
        del keys[key]
        if not keys:
            del self._keys[item]


#: Indexes of the parts of an entry.
STATE: Final = 0
EVENT_TIMERS: Final = 1
PROCESSING_TIMERS: Final = 2
CONTENTS: Final = 3

#: State by name, event-time timers, processing-time timers, and the contents if there are any.
Entry: TypeAlias = list[Any]


class WindowState:
    """Open windows by key, and their due times; `lateness` is in microseconds."""

    def __init__(self, table: StateTable, *, is_event_time: bool, lateness: int, is_endless: bool) -> None:
        self._entries = table.entries
        self._changed = table.changed
        self._changed.accept_copies()
        #: Windows that were touched since the last `report`, those that were not owned before, and new parts.
        self._touched: list[tuple[Any, Span]] = []
        self._others: list[tuple[Any, Span]] = []
        self._parts: list[Any] = []
        self._lateness = lateness
        self._is_endless = is_endless
        #: Windows by their due times, in event time and in processing time.
        self.due = {EVENT_TIMERS: TimerIndex(), PROCESSING_TIMERS: TimerIndex()}
        #: The index for the windows' own kind of time; it also has the windows' last moments.
        self._ends = self.due[EVENT_TIMERS if is_event_time else PROCESSING_TIMERS]
        self._count = 0
        for key, windows in self._entries.items():
            for window, entry in windows.items():
                self._index(key, window, entry)

    def __len__(self) -> int:
        return self._count

    def last_moment(self, window: Span) -> int | None:
        """End of a window's life, in microseconds of its kind of time; `None` if it never ends."""
        return None if self._is_endless else window[1] - 1 + self._lateness

    def has_key(self, key: Any) -> bool:
        return key in self._entries

    def of_key(self, key: Any) -> Iterator[Span]:
        return iter(self._entries.get(key, ()))

    def get(self, key: Any, window: Span) -> Entry | None:
        """A window's entry, which the caller may change; call `touch` afterwards."""
        self._own(key, window)
        windows = self._entries.get(key)
        return None if windows is None else windows.get(window)

    def open(self, key: Any, window: Span) -> Entry:
        self._own(key, window)
        windows = self._entries.get(key)
        if windows is None:
            windows = self._entries[key] = {}
        entry: Entry | None = windows.get(window)
        if entry is None:
            entry = windows[window] = [{}, [], []]
            self._index(key, window, entry)
        return entry

    def touch(self, key: Any, window: Span, entry: Entry, *contents: Any) -> None:
        """Note a changed entry, after all its changes; a backend on disk may encode and drop it now.

        Args:
            contents: All objects that were put into the contents.
        """
        windows = self._entries.get(key)
        if windows is None:
            windows = self._entries[key] = {}
        windows[window] = entry
        changed = self._changed
        if not changed.lends:
            changed.add((key, window))
            return
        self._touched.append((key, window))
        if changed.keeps_values:
            self._parts += entry[STATE].values()
            self._parts += contents

    def report(self) -> None:
        """Report the changes of a batch."""
        if self._touched or self._others:
            touched = [*self._touched, *self._others]  # an owned window must have been reported
            self._changed.put_owned(touched, self._others, self._parts)
            self._touched, self._others, self._parts = [], [], []

    def _own(self, key: Any, window: Span) -> None:
        changed, entry = self._changed, (key, window)
        if changed.lends and entry not in changed.own_accumulators:
            self._others += changed.own((entry,))

    def delete(self, key: Any, window: Span) -> Entry:
        windows = self._entries[key]
        entry: Entry = windows.pop(window)
        if not windows:
            del self._entries[key]
        self._changed.disown((key, window))
        for kind, index in self.due.items():
            for at in entry[kind]:
                index.remove(at, window, key)
        last = self.last_moment(window)
        if last is not None:
            self._ends.remove(last, window, key)
        self._count -= 1
        return entry

    def add_timer(self, key: Any, window: Span, at: int, kind: int) -> None:
        timers = self._entries[key][window][kind]
        if at not in timers:
            timers.append(at)
            self.due[kind].add(at, window, key)

    def remove_timer(self, key: Any, window: Span, at: int, kind: int) -> None:
        timers = self._entries[key][window][kind]
        if at in timers:
            timers.remove(at)
            index = self.due[kind]
            if index is not self._ends or at != self.last_moment(window):
                index.remove(at, window, key)

    def _index(self, key: Any, window: Span, entry: Entry) -> None:
        self._count += 1
        for kind, index in self.due.items():
            for at in entry[kind]:
                index.add(at, window, key)
        last = self.last_moment(window)
        if last is not None:
            self._ends.add(last, window, key)


def is_empty(entry: Entry) -> bool:
    return len(entry) == CONTENTS and not (entry[STATE] or entry[EVENT_TIMERS] or entry[PROCESSING_TIMERS])
