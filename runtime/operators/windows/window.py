"""`key_by(...).window(...)`: records of a key folded by windows of event time.

`RowWindowOperator` is the base of the operators that fold rows into the contents of windows.
`WindowOperator` has windows of one size, and each window fires once. `triggered_window` has all other
windows.

All windows of a key are one entry of keyed state, `{start: contents}`. An index in memory (`WindowEnds`)
holds the keys by the ends of their windows, instead of event-time timers. The operator builds it from the
state when it opens, so no snapshot holds it and it can't disagree with the state.

A window fires once, when a watermark reaches its last microsecond, and is deleted. When many windows have
ended, they fire in portions, and the watermark waits for the last one (`held_watermark.py`). Windows that
have not fired are in the state, so a snapshot between two portions is complete.

A record is late if all of its windows have ended; it goes to a side output. A restart does not change which
records are late (`held_watermark.py`). At another parallelism, a late record may open a window that has fired
already. That happens if the old subtask of its key was ahead of other subtasks.

Restored windows of another shape must be refused (`WindowShape`). They would be emitted with only some of
their records, or with a wrong start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import timedelta
from heapq import heappop, heappush
from math import inf
from typing import Any, ClassVar, Final, NamedTuple

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.functions.event_time_operator import (
    LATE_RECORDS,
    KeyedEventTimeOperator,
    no_timestamps,
)
from penstock.runtime.operators.functions.function_operator import check_function, only_table, rows_of
from penstock.runtime.operators.held_watermark import some_of
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.windows.window_contents import ALL_RECORDS, ListedContents, WindowContents
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.time.windows import TimeWindow, WindowAssigner, slide_of
from penstock.runtime.user_location import function_location


class WindowShape(NamedTuple):
    """Size, starts and kind of contents of windows; snapshots hold it.

    Attributes:
        size: Microseconds from start to end.
        slide: Microseconds from one start to the next; `None` for an assigner without a fixed slide.
        offset: The first start at or after the epoch, in microseconds; `None` if the assigner has none.

    Example:
        >>> print(WindowShape(10_000_000, "all records", 5_000_000, 0))
        0:00:10 long, begin every 0:00:05 with offset 0:00:00 and keep all records
    """

    size: int
    keeps: str
    slide: int | None = None
    offset: int | None = None

    @classmethod
    def of(cls, assigner: WindowAssigner, keeps: str) -> WindowShape:
        slide, offset = slide_of(assigner), getattr(assigner, "offset", None)
        if slide is None or not isinstance(offset, int):
            return cls(assigner.size, keeps, slide)
        return cls(assigner.size, keeps, slide, offset % slide)

    def state(self) -> SavedList:
        return SavedList([tuple(self)], RedistributionMode.BROADCAST)

    def check(self, restored: Iterable[tuple[Any, ...]]) -> None:
        """Refuse restored windows of another shape; compares only values that both shapes have."""
        for saved in restored:
            old = WindowShape(*saved)
            pairs = zip(old, self, strict=True)
            if any(was != now for was, now in pairs if None not in (was, now)):
                msg = (
                    f"the restored windows are {old}. This program's windows are {self}. "
                    "Give the operator a new id, or change the windows back"
                )
                raise StateMismatchError(msg)

    def __str__(self) -> str:
        parts = [f"{timedelta(microseconds=self.size)} long"]
        if self.slide is not None:
            parts.append(f"begin every {timedelta(microseconds=self.slide)}")
        if self.offset is not None:
            parts[-1] += f" with offset {timedelta(microseconds=self.offset)}"
        return f"{', '.join(parts)} and keep {self.keeps}"


class WindowEnds:
    """Index of keys by the ends of windows of one size; the earliest end first, then in the order of `add`.

    A window stays in the index until it fires. So the keys of an end are only added at the back and removed
    from the front. The `TimerIndex` of other windows can remove a key at any time.

    Example:
        >>> ends = WindowEnds()
        >>> for end, key in [(20, "ann"), (10, "ann"), (10, "bob")]:
        ...     ends.add(end, key)
        >>> due = ends.due(9)
        >>> next(due), ends.next_at
        ((10, 'ann'), 9)
        >>> list(ends.due(9)), ends.next_at
        ([(10, 'bob')], 19)
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._keys: dict[int, dict[Any, None]] = {}
        #: The end whose windows are being removed, and its remaining keys.
        self._removed_end = 0
        self._left: deque[Any] = deque()

    @property
    def next_at(self) -> int | None:
        if self._left:
            return self._removed_end - 1
        return self._ends[0] - 1 if self._ends else None

    def add(self, end: int, key: Any) -> None:
        keys = self._keys.get(end)
        if keys is None:
            keys = self._keys[end] = {}
            heappush(self._ends, end)
        keys[key] = None

    def due(self, until: int) -> Iterator[tuple[int, Any]]:
        """Remove the windows whose last microsecond has been reached; yields end and key."""
        left = self._left
        while left or (self._ends and self._ends[0] - 1 <= until):
            if not left:
                self._removed_end = heappop(self._ends)
                left.extend(self._keys.pop(self._removed_end))
            yield self._removed_end, left.popleft()


#: Name of the state table that holds the windows of each key.
WINDOW_STATE: Final = "windows"

#: Name of the list state that holds the shape of the windows.
SHAPE: Final = "shape"


class RowWindowOperator(KeyedEventTimeOperator):
    """Folds records by key and window; a watermark waits until the windows that it ends have fired."""

    kind: ClassVar[str] = "window"

    def __init__(
        self, key_selector: Callable[[Any], Any], contents: Callable[[], WindowContents], late_tag: str
    ) -> None:
        self._contents = contents()
        self.takes_generators = isinstance(self._contents, ListedContents)
        super().__init__(key_selector, self._contents.function, late_tag)
        #: Timestamp of the results of the window that is firing.
        self._stamp: int | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for function in self._contents.other_functions:
            check_function(self.kind, function)
        self._contents.isolates = self.isolates

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        contents = self._contents
        return contents.function, contents.result_function, *contents.other_functions


class WindowOperator(RowWindowOperator):
    """Folds records by key and window, and emits a window when event time has passed it."""

    _table: StateTable

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        assigner: WindowAssigner,
        contents: Callable[[], WindowContents],
        late_tag: str = LATE_RECORDS,
    ) -> None:
        super().__init__(key_selector, contents, late_tag)
        self._assigner = assigner
        self._size = assigner.size
        #: Slide of the windows; `None` if the assigner must be called for every record.
        self._slide = slide_of(assigner)
        self._shape = WindowShape.of(assigner, self._contents.keeps)
        self._contents.overlap = self._slide is not None and self._slide < self._size
        self._firing = False
        self._ends = WindowEnds()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._table = only_table(context, WINDOW_STATE, "windows")
        self._table.changed.accept_copies()
        if self._table.entries:
            self._shape.check(context.restored.get(SHAPE, ()))
        for key, windows in self._table.entries.items():
            for start in windows:
                self._ends.add(start + self._size, key)

    @property
    def only_reads(self) -> bool:
        return super().only_reads and self._slide is not None

    @property
    def doing(self) -> str:
        if self._firing and not self._selecting:
            return f"{self.kind} function {function_location(self._contents.result_function)}"
        return super().doing

    def process(self, batch: Batch) -> Iterator[Output]:
        yield from self._hold.release()
        rows = rows_of(batch)
        if rows.timestamps is None and len(rows):
            raise no_timestamps()
        keys = self._keys_of(rows)
        others = self._own_values(self._table, keys, rows)
        late, touched = self._add(keys, rows, self._table.entries)
        self._cursor.done()
        self._table.changed.put_owned(keys, others, touched)
        if late:
            yield self._late_output([row for row, _ in late], [stamp for _, stamp in late])

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {**super().snapshot(checkpoint_id), SHAPE: self._shape.state()}

    def _add(
        self, keys: list[Any], rows: RowBatch, entries: MutableMapping[Any, Any]
    ) -> tuple[list[tuple[Any, int]], list[Any]]:
        """Return the late records with their timestamps, and the objects put into windows if many changed."""
        first, add, size, slide = self._contents.first, self._contents.add, self._size, self._slide
        starts_of, late, touched = self._assigner.starts, [], list[Any]()
        is_examined, is_list = self._table.changed.keeps_values, self._contents.keeps == ALL_RECORDS
        # Windows that start at `over` or earlier have ended.
        reached = self._reached.timestamp
        over = -inf if reached is None else reached + 1 - size
        starts: Sequence[int] = ()
        low = high = 0  # all timestamps from `low` up to `high` are in the windows that begin at `starts`
        records = zip(keys, rows.timestamps or (), self._cursor.over(rows.rows), strict=True)
        try:
            for key, stamp, row in records:
                if not low <= stamp < high:
                    starts = starts_of(stamp)
                    if slide is None and len(starts) > 1:
                        self._contents.overlap = True
                    low, high = _same_windows(starts, size, slide) if slide and starts else (stamp, stamp + 1)
                    starts = [start for start in starts if start > over]
                if not starts:
                    hash(key)
                    late.append((row, stamp))
                    continue
                windows = entries.get(key)
                if windows is None:
                    self._check_key(key)
                    windows = entries[key] = {}
                for start in starts:
                    if start in windows:
                        contents = add(windows[start], row)
                    else:
                        contents = first(row)
                        self._ends.add(start + size, key)
                    windows[start] = contents
                    if is_examined:
                        touched.append(row if is_list else contents)
        except TypeError:
            self._after_type_error(keys)
            raise
        return late, touched

    def _next_end(self) -> int | None:
        return self._ends.next_at

    def _fire(self, until: int, everything: bool) -> Iterator[Output]:
        due = some_of(self._ends.due(until), self._clock.monotonic, everything=everything)
        # `_results` sets `_stamp` to the timestamp of each window, and to `None` at the end.
        return self._collector.collect(self._results(due), iter(lambda: self._stamp, None))

    def _results(self, due: Iterable[tuple[int, Any]]) -> Iterator[Iterable[Any] | None]:
        entries, changed, size = self._table.entries, self._table.changed, self._size
        # A backend on disk may drop windows of other keys at each report. So it receives each report at once.
        lends, fired = changed.lends, list[Any]()
        self._firing = True
        window = None
        for end, key in due:
            if window is None or window.end_timestamp != end:
                window, self._stamp = TimeWindow(end - size, end), end - 1
            if lends and key not in changed.own_accumulators:
                fired += changed.own((key,))
            windows = entries[key]
            yield self._contents.results(key, window, windows[end - size])
            del windows[end - size]
            if not windows:
                del entries[key]
                changed.disown(key)
            elif not lends:
                changed.add(key)
        changed.put_owned(fired, fired, ())
        self._firing = False
        self._stamp = None


def _same_windows(starts: Sequence[int], size: int, slide: int) -> tuple[int, int]:
    """Bounds of the timestamps that are in exactly these windows; the upper one is excluded.

    Example:
        >>> _same_windows((0, 3, 6, 9), size=10, slide=3)
        (9, 10)
    """
    return max(starts[-1], starts[0] - slide + size), min(starts[-1] + slide, starts[0] + size)
