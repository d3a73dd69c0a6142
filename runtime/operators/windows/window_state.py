"""`WindowState`: the open windows of one subtask, each with its trigger state, timers and contents.

A window of a key is one entry of a nested table: its key, its start and end, and a list of four parts. First
come the trigger's state by name, and its timers of event time and of processing time. The contents come last,
and are missing after a purge. Deleting the entry deletes all of it. A checkpoint writes the windows that were
touched since the last one.

An empty window has no entry either, though it has not ended; a global window never ends. A session keeps its
entry until it has ended, even after a purge, because later records join it.

Two indexes in memory (`TimerIndex`) hold the windows by their due times, in event time and in processing
time. A window is due at each of its timers and at the end of its life. The indexes are built from the entries
when the operator opens, so no snapshot holds them.

Many keys have the same window, so they share one item of the heap. An item without keys stays in the heap
until it is the first. When most of the heap is such waste, as with sessions, it is built anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from penstock.runtime.state.state_table import StateTable

#: Start and end of a window: the second part of an entry of keyed state.
Span: TypeAlias = tuple[int, int]

#: Minimum number of heap items for which waste is counted.
_LEAST_WASTE: Final = 1024


class TimerIndex:
    """Due times of windows: the earliest first, and at equal times the window that begins first.

    Example:
        >>> index = TimerIndex()
        >>> index.add(20, (0, 21), "ann")
        >>> index.add(10, (0, 11), "ann")
        >>> index.add(10, (0, 11), "bob")
        >>> index.remove(20, (0, 21), "ann")
        >>> index.next_at, index.pop(10), index.pop(10), index.pop(10), len(index)
        (10, (10, (0, 11), 'ann'), (10, (0, 11), 'bob'), None, 0)
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[int, Span], dict[Any, None]] = {}
        self._heap: list[tuple[int, Span]] = []
        #: Remaining keys of one item, the next one last.
        self._turn: list[Any] = []
        self._whose_turn: tuple[int, Span] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

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
        elif key in keys:
            return
        keys[key] = None
        self._count += 1

    def remove(self, at: int, window: Span, key: Any) -> None:
        item = at, window
        keys = self._keys.get(item)
        if keys is None or key not in keys:
            return
        self._take_out(item, keys, key)
        if len(self._heap) > 2 * len(self._keys) + _LEAST_WASTE:
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
            if item != self._whose_turn or not self._turn:
                self._turn = list(reversed(keys))
                self._whose_turn = item
            key = self._turn.pop()
            if key in keys:
                self._take_out(item, keys, key)
                return (*item, key)
        return None

    def _take_out(self, item: tuple[int, Span], keys: dict[Any, None], key: Any) -> None:
        del keys[key]
        if not keys:
            del self._keys[item]
        self._count -= 1


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
        self._is_event_time = is_event_time
        self._lateness = lateness
        self._is_endless = is_endless
        self.event_time = TimerIndex()
        self.processing_time = TimerIndex()
        self._count = 0
        for key, windows in self._entries.items():
            for window, entry in windows.items():
                self._index(key, window, entry)

    def __len__(self) -> int:
        return self._count

    def last_moment(self, window: Span) -> int | None:
        """End of a window's life, in microseconds of the window's kind of time; `None` for never."""
        return None if self._is_endless else window[1] - 1 + self._lateness

    def has_key(self, key: Any) -> bool:
        return key in self._entries

    def of_key(self, key: Any) -> Iterator[Span]:
        return iter(self._entries.get(key, ()))

    def get(self, key: Any, window: Span) -> Entry | None:
        """A window's entry; call `touch` after changing it."""
        windows = self._entries.get(key)
        return None if windows is None else windows.get(window)

    def open(self, key: Any, window: Span) -> Entry:
        windows = self._entries.get(key)
        if windows is None:
            windows = self._entries[key] = {}
        entry: Entry | None = windows.get(window)
        if entry is None:
            entry = windows[window] = [{}, [], []]
            self._index(key, window, entry)
        return entry

    def touch(self, key: Any, window: Span, entry: Entry) -> None:
        """Report a changed entry, after all its changes: a backend may drop its copy then."""
        windows = self._entries.get(key)
        if windows is None:
            windows = self._entries[key] = {}
        windows[window] = entry
        self._changed.add((key, window))

    def delete(self, key: Any, window: Span) -> Entry:
        windows = self._entries[key]
        entry: Entry = windows.pop(window)
        if not windows:
            del self._entries[key]
        self._changed.add((key, window))
        for index, moments in ((self.event_time, entry[EVENT_TIMERS]), (self.processing_time, entry[2])):
            for at in moments:
                index.remove(at, window, key)
        last = self.last_moment(window)
        if last is not None:
            self._own_time.remove(last, window, key)
        self._count -= 1
        return entry

    def add_timer(self, key: Any, window: Span, at: int, kind: int) -> None:
        timers = self._entries[key][window][kind]
        if at not in timers:
            timers.append(at)
            self._index_of(kind).add(at, window, key)

    def remove_timer(self, key: Any, window: Span, at: int, kind: int) -> None:
        timers = self._entries[key][window][kind]
        if at in timers:
            timers.remove(at)
            index = self._index_of(kind)
            if index is not self._own_time or at != self.last_moment(window):
                index.remove(at, window, key)

    @property
    def _own_time(self) -> TimerIndex:
        return self.event_time if self._is_event_time else self.processing_time

    def _index_of(self, kind: int) -> TimerIndex:
        return self.event_time if kind == EVENT_TIMERS else self.processing_time

    def _index(self, key: Any, window: Span, entry: Entry) -> None:
        self._count += 1
        for at in entry[EVENT_TIMERS]:
            self.event_time.add(at, window, key)
        for at in entry[PROCESSING_TIMERS]:
            self.processing_time.add(at, window, key)
        last = self.last_moment(window)
        if last is not None:
            self._own_time.add(last, window, key)


def is_empty(entry: Entry) -> bool:
    return len(entry) == CONTENTS and not (entry[STATE] or entry[EVENT_TIMERS] or entry[PROCESSING_TIMERS])
