"""`Panes`: tumbling, sliding and cumulative windows over arrays of moments.

A *pane* is the longest span of time that no window begins or ends in. All moments of a pane are in the same
windows. So rows are reduced by pane, and each pane's row goes into all windows that hold it.

Cumulative windows begin together and differ in size. Here their ends distinguish them, as all others
may be: each counts as one of the largest size with its end. Only what is emitted names its real beginning.

**Sessions** (`joined`): spans of event time of many keys are joined without a loop over keys. A span goes
from one record to another that is in the same session. Spans of a key belong together when one begins less
than a gap after the end of those before it. They are sorted by key and beginning. Then a session begins with
a new key, or where a span begins a gap or more after the latest record so far. That *latest so far* is a
running maximum within each key. It is taken over all keys at once. For this, moments are replaced by their
ranks, and each key's ranks lie above those of the keys before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.elements import Batch
from penstock.runtime.time.windows import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

#: Windows that aggregates of columns know.
ColumnWindows = TumblingEventTimeWindows | SlidingEventTimeWindows | CumulativeEventTimeWindows

#: Moments in microseconds.
Moments = NDArray[np.int64]


class Panes:
    """The panes of some windows.

    Attributes:
        size: Microseconds from a window's start to its end; of cumulative ones the largest.

    Example:
        >>> panes = Panes(SlidingEventTimeWindows(size=10e-6, slide=4e-6))
        >>> panes.of(np.array([9, 10, 11])).tolist()
        [8, 10, 10]
        >>> [(starts.tolist(), holds.tolist()) for starts, holds in panes.windows_of(np.array([8, 10]))]
        [([8, 8], [True, True]), ([4, 4], [True, True]), ([0, 0], [True, False])]
    """

    def __init__(self, windows: ColumnWindows) -> None:
        self._offset = windows.offset
        self._is_cumulative = isinstance(windows, CumulativeEventTimeWindows)
        if isinstance(windows, CumulativeEventTimeWindows):
            self.size, self._slide, self._period = windows.max_size, windows.step, windows.max_size
        else:
            self.size, self._slide, self._period = windows.size, windows.slide, windows.slide
        self._length = gcd(self.size, self._slide)

    @property
    def overlap(self) -> bool:
        return self.size > self._slide

    def begins(self, ends: Moments) -> Moments:
        """Starts of the windows that end at these moments.

        Example:
            >>> panes = Panes(CumulativeEventTimeWindows(max_size=15e-6, step=5e-6))
            >>> panes.begins(np.array([5, 10, 15, 20])).tolist()
            [0, 0, 0, 15]
        """
        return self._last_start(ends - 1) if self._is_cumulative else ends - self.size

    def of(self, stamps: Moments) -> Moments:
        return stamps - (stamps - self._offset) % self._length

    def only_one(self, stamps: Moments) -> int | None:
        """The beginning of the pane that holds all moments; `None` where they are in several, or none.

        Example:
            >>> panes = Panes(TumblingEventTimeWindows(10e-6))
            >>> panes.only_one(np.array([12, 19, 11])), panes.only_one(np.array([19, 20]))
            (10, None)
        """
        if not len(stamps):
            return None
        first, last = self.of(np.array([stamps.min(), stamps.max()]))
        return int(first) if first == last else None

    def windows_of(self, panes: Moments) -> Iterator[tuple[Moments, NDArray[np.bool_]]]:
        """The windows of some panes: starts, the last of each pane first, and whether it holds the pane."""
        last = self._last_start(panes)
        for number in range(-(-self.size // self._slide)):
            starts = last - number * self._slide
            holds: NDArray[np.bool_] = starts + self.size > panes
            yield starts, holds

    def are_over(self, starts: Moments, reached: int | None) -> NDArray[np.bool_]:
        """The windows that have fired at a watermark; `None` is before the first one."""
        if reached is None:
            return np.zeros(len(starts), np.bool_)
        are_over: NDArray[np.bool_] = starts + (self.size - 1) <= reached
        return are_over

    def are_late(self, stamps: Moments, reached: int | None) -> NDArray[np.bool_]:
        """The moments in no window that is still open at a watermark.

        Mostly not even the earliest one is late, and then the others need no look.
        """
        if len(stamps) and not self.are_over(self._last_start(stamps.min(keepdims=True)), reached).any():
            return np.zeros(len(stamps), np.bool_)
        return self.are_over(self._last_start(stamps), reached)

    def _last_start(self, stamps: Moments) -> Moments:
        return stamps - (stamps - self._offset) % self._period


def moments_of(batch: Batch) -> Moments:
    """The timestamps of a batch; refuses one without any."""
    if batch.timestamps is None:
        msg = (
            "the records have no timestamps, so they are in no window; call "
            "assign_timestamps_and_watermarks(...) before key_by, and after a map_batches that does "
            "not return one batch as long as its input: only such a one keeps them"
        )
        raise PenstockError(msg)
    return np.asarray(batch.timestamps, np.int64)


#: Moments in microseconds, keys and places.
Numbers = NDArray[np.int64]


class JoinedSpans(NamedTuple):
    """Sessions made of spans; `session` has that of each span, counted from 0."""

    session: Numbers
    keys: Numbers
    firsts: Numbers
    lasts: Numbers


def joined(keys: Numbers, firsts: Numbers, lasts: Numbers, gap: int) -> JoinedSpans:
    """Join the spans of each key that are less than a gap apart.

    Args:
        lasts: When the last record of each span was.
        gap: Microseconds.

    Example:
        >>> spans = joined(np.array([7, 8, 7, 7]), np.array([20, 0, 0, 9]), np.array([20, 0, 4, 9]), gap=10)
        >>> spans.session.tolist(), spans.keys.tolist()
        ([1, 2, 0, 0], [7, 7, 8])
        >>> spans.firsts.tolist(), spans.lasts.tolist()
        ([0, 20, 0], [9, 20, 0])
    """
    order = np.lexsort((firsts, keys))
    keys, firsts = keys[order], firsts[order]
    moments, ranks = _ranked(lasts[order])
    is_new_key = np.ones(len(keys), np.bool_)
    is_new_key[1:] = keys[1:] != keys[:-1]
    above = (np.cumsum(is_new_key) - 1) * len(moments)
    latest = moments[np.maximum.accumulate(ranks + above) - above]
    begins = is_new_key.copy()
    begins[1:] |= firsts[1:] - latest[:-1] >= gap
    places = np.flatnonzero(begins)
    session = np.empty(len(keys), np.int64)
    session[order] = np.cumsum(begins) - 1
    ends = np.append(places[1:], len(keys)) - 1
    return JoinedSpans(session, keys[places], firsts[places], latest[ends])


def _ranked(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers in order, and the place of each one there; of equal ones any."""
    order = np.argsort(numbers)
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers))
    return numbers[order], ranks
