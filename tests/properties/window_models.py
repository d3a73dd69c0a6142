"""Windows computed the slow way: every record is kept, and everything is found by looking at all of them.

The model knows nothing of the operators. Its arguments describe a window's trigger in words: the records, or
the time, of a result. It is also told whether a result is forgotten, and what an evictor leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

#: Start and end.
Span = tuple[int, int]
#: A key, a window, and the values that it emits.
Row = tuple[str, Span, tuple[int, ...]]


@dataclass(frozen=True)
class Record:
    key: str
    value: int
    stamp: int


@dataclass
class OpenWindow:
    span: Span
    values: list[int] = field(default_factory=list)
    counted: int = 0
    has_ended: bool = False
    #: When the next result is due on the way; `None` when none is awaited.
    due: int | None = None


@dataclass
class Model:
    """One subtask's windows.

    Attributes:
        spans_of: The windows of a record.
        merges: Whether windows that overlap become one.
        early: A result after every so many records before the end.
        late: A result after every so many records behind the end; `None` for one after each.
        every: A result whenever time has passed a whole number of these, of which a record has come since.
        left: The values that an evictor leaves, of values with the times of all values.
        ends_silently: Whether a window gives no result at its end.
    """

    spans_of: Callable[[Record], Iterable[Span]]
    merges: bool = False
    lateness: int = 0
    early: int | None = None
    late: int | None = None
    purges: bool = False
    every: int | None = None
    left: Callable[[list[int], dict[int, int]], list[int]] | None = None
    ends_silently: bool = False
    stamps: dict[int, int] = field(default_factory=dict)
    reached: float = float("-inf")
    windows: dict[str, list[OpenWindow]] = field(default_factory=dict)
    late_values: list[int] = field(default_factory=list)

    def record(self, record: Record) -> list[Row]:
        rows: list[Row] = []
        taken = False
        self.stamps[record.value] = record.stamp
        for span in self.spans_of(record):
            mine = self.windows.setdefault(record.key, [])
            touching = [w for w in mine if w.span[0] < span[1] and span[0] < w.span[1]] if self.merges else []
            span = (
                min([span[0], *(w.span[0] for w in touching)]),
                max([span[1], *(w.span[1] for w in touching)]),
            )
            if span[1] - 1 + self.lateness <= self.reached:
                continue
            taken = True
            window = next((w for w in mine if w.span == span), None)
            if window is None:
                touching.sort(key=lambda w: w.span)
                values = [value for w in touching for value in w.values]
                counted = sum(w.counted for w in touching)
                dues = [w.due for w in touching if w.due is not None]
                window = OpenWindow(span, values, counted, due=min(dues, default=None))
                mine[:] = [w for w in mine if w not in touching] + [window]
            window.has_ended = span[1] - 1 <= self.reached
            window.values.append(record.value)
            if window.has_ended:
                window.due = None
            elif self.every is not None:
                come = record.stamp if self.reached < record.stamp else int(self.reached) + 1
                due = (come // self.every + 1) * self.every - 1
                if due < span[1] - 1:
                    window.due = due if window.due is None else min(due, window.due)
            every = self.late if window.has_ended else self.early
            if every is None:
                fires = window.has_ended
            else:
                window.counted += 1
                fires = window.counted >= every
            if fires:
                window.counted = 0
                rows += self._emitted(record.key, window)
        if not taken:
            self.late_values.append(record.value)
        return rows

    def watermark(self, moment: int) -> list[Row]:
        rows: list[Row] = []
        self.reached = max(self.reached, moment)
        for key, windows in self.windows.items():
            for window in sorted(windows, key=lambda w: w.span[1]):
                if window.due is not None and window.due <= self.reached:
                    window.due = None
                    rows += self._emitted(key, window)
                if not window.has_ended and window.span[1] - 1 <= self.reached:
                    window.has_ended, window.counted = True, 0
                    rows += [] if self.ends_silently else self._emitted(key, window)
            windows[:] = [w for w in windows if w.span[1] - 1 + self.lateness > self.reached]
        return rows

    def _emitted(self, key: str, window: OpenWindow) -> list[Row]:
        if self.left is not None:
            window.values = self.left(window.values, self.stamps)
        row = (key, window.span, tuple(window.values))
        if self.purges:
            window.values = []
        return [row] if row[2] else []


def aligned(size: int, slide: int, offset: int) -> Callable[[Record], list[Span]]:
    """Every window near a record that holds it."""

    def spans(record: Record) -> list[Span]:
        near = range(record.stamp - size - slide, record.stamp + slide + 1)
        starts = [start for start in near if (start - offset) % slide == 0]
        return [(start, start + size) for start in starts if start <= record.stamp < start + size]

    return spans


def cumulative(most: int, step: int, offset: int) -> Callable[[Record], list[Span]]:
    def spans(record: Record) -> list[Span]:
        (whole,) = aligned(most, most, offset)(record)
        sizes = range(step, most + 1, step)
        return [(whole[0], whole[0] + size) for size in sizes if record.stamp < whole[0] + size]

    return spans


def sessions_of(stamps: Sequence[int], gap: int) -> list[Span]:
    """Sessions of records that are all on time: in whatever order they come."""
    found: list[Span] = []
    for stamp in sorted(stamps):
        if found and stamp < found[-1][1]:
            found[-1] = (found[-1][0], stamp + gap)
        else:
            found.append((stamp, stamp + gap))
    return found
