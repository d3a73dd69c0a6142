"""Sending side of a channel: size of its buffers (`BufferBudget`), queue of unsent elements (`SendQueue`).

`SendQueue` holds encoded elements in the order of emission, and returns them as frames. Buffers, watermarks
and stream statuses need a credit each. Barriers, markers and ends of data need none. They keep their place;
only an unaligned barrier moves to the front.

`BufferBudget` derives a row limit from a byte budget and the previous buffer. The first buffer of a channel
has no predecessor. So a few of its rows are encoded and measured before it grows. Otherwise 1,024 rows of a
megabyte each would make a first buffer of 1 GB.

`BufferDebloater` adapts the rows of a buffer to the receiver's throughput (Flink's buffer debloating). A
frame costs sender and receiver about a millisecond each, whatever its size, so large buffers are cheap. But
an aligned barrier waits behind every outstanding buffer. For a slow receiver, large buffers are minutes of
work. So all outstanding buffers together hold the rows that the receiver consumes in `target` seconds.

The measurement: a receiver answers a frame when it begins to process it. If other buffers are then
outstanding or wait for a credit, the receiver counts as busy until its next answer. This includes the time
that it spends on other channels. No other time counts. If nothing is outstanding after an answer, the
measurement pauses, because the receiver may then wait for the sender. A full buffer that did not keep the
receiver busy shows that larger buffers do no harm.

The sender takes several answers at once, between two pieces of work. So answers are gathered until the
receiver has been busy for `_WINDOW` seconds. Each measurement at most doubles or halves the size, so a pause
of the receiver costs one step. A channel begins with small buffers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from penstock.runtime.network.channel_state import CAPTURED
from penstock.runtime.record.element_codec import ElementKind, encode_element, kind_of, rows_in
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, Event, RowBatch

#: Kinds of elements that need a credit.
_NEED_CREDIT: Final = (ElementKind.BUFFER, ElementKind.WATERMARK, ElementKind.STREAM_STATUS)


class OutgoingFrame(NamedTuple):
    elements: list[bytes]
    credits: int
    rows: int


@dataclass(slots=True)
class _Queued:
    data: bytes
    kind: ElementKind
    rows: int = 0
    barrier: CheckpointBarrier | None = None
    ends_frame: bool = False


class SendQueue:
    """The elements of one channel that wait to be sent."""

    def __init__(self) -> None:
        self._elements: deque[_Queued] = deque()
        self.buffers = 0

    def __len__(self) -> int:
        return len(self._elements)

    def add_buffer(self, buffer: Buffer) -> None:
        self._elements.append(_Queued(encode_element(buffer), ElementKind.BUFFER, buffer.rows))
        self.buffers += 1

    def add_event(self, event: Event) -> None:
        """Append an event; a watermark replaces a watermark at the end."""
        data = encode_element(event)
        kind, elements = kind_of(data), self._elements
        if kind is ElementKind.WATERMARK and elements and elements[-1].kind is kind:
            elements.pop()
        barrier = event if isinstance(event, CheckpointBarrier) else None
        elements.append(_Queued(data, kind, barrier=barrier, ends_frame=barrier is not None))

    def add_restored(self, data: bytes) -> None:
        """Add an encoded element that a checkpoint's barrier had overtaken."""
        kind = kind_of(data)
        self._elements.append(_Queued(data, kind, rows_in(data)))
        self.buffers += kind is ElementKind.BUFFER

    def put_first(self, barrier: CheckpointBarrier) -> None:
        self._elements.appendleft(_Queued(encode_element(barrier), ElementKind.BARRIER, barrier=barrier))

    def captured(self) -> list[bytes]:
        """Elements that a checkpoint stores when its barrier overtakes the whole queue."""
        return [queued.data for queued in self._elements if queued.kind in CAPTURED]

    def has_barrier(self, checkpoint_id: int) -> bool:
        return self._place_of(checkpoint_id) is not None

    def take_barrier(self, checkpoint_id: int) -> tuple[CheckpointBarrier, list[bytes]] | None:
        """Remove a checkpoint's barrier; return it, and the elements before it that the checkpoint stores."""
        place = self._place_of(checkpoint_id)
        if place is None:
            return None
        barrier = self._elements[place].barrier
        assert barrier is not None
        overtaken = [queued.data for queued in islice(self._elements, place) if queued.kind in CAPTURED]
        del self._elements[place]
        return barrier, overtaken

    def take_frame(self, credits: int) -> OutgoingFrame:
        """Remove the elements of one frame, up to an aligned barrier or the last credit; may be empty."""
        elements: list[bytes] = []
        credited = rows = 0
        while self._elements:
            head = self._elements[0]
            needs_credit = head.kind in _NEED_CREDIT
            if needs_credit and credited >= credits:
                break
            self._elements.popleft()
            elements.append(head.data)
            rows += head.rows
            credited += needs_credit
            self.buffers -= head.kind is ElementKind.BUFFER
            if head.ends_frame:
                break
        return OutgoingFrame(elements, credited, rows)

    def _place_of(self, checkpoint_id: int) -> int | None:
        barriers = ((place, queued.barrier) for place, queued in enumerate(self._elements))
        return next((place for place, b in barriers if b and b.checkpoint_id == checkpoint_id), None)


#: Minimum duration of a measurement, in seconds.
_WINDOW: Final = 0.05
#: Maximum rows of a channel's first buffers.
_FIRST: Final = 1024


class BufferDebloater:
    """Sizes a channel's buffers by its receiver's throughput; see the module's docstring.

    Args:
        max_rows: Maximum rows of any buffer.
        target: Intended seconds for the receiver to consume all outstanding buffers.

    Attributes:
        rows: Maximum rows of the next buffer, at least 1.
    """

    def __init__(self, max_rows: int, credits: int, target: float) -> None:
        self._max_rows = max_rows
        self._share = target / credits
        self._busy_since: float | None = None
        self._begun = 0
        self._busy = 0.0
        self._consumed = 0
        self.rows = min(_FIRST, max_rows)

    def consumed(self, rows: int, now: float, *, more: bool) -> None:
        """Note that the receiver has begun to process a frame of `rows` rows.

        `more`: other buffers are outstanding or wait for this frame's credit.
        """
        if self._busy_since is not None:
            self._busy += now - self._busy_since
            self._consumed += self._begun
        if self._busy >= _WINDOW:
            self._approach(int(self._share * self._consumed / self._busy))
            self._busy, self._consumed = 0.0, 0
        elif not more and rows >= self.rows:
            self._approach(self._max_rows)
        self._busy_since = now if more else None
        self._begun = rows

    def _approach(self, rows: int) -> None:
        """Change the size towards `rows`, by a factor of at most two."""
        self.rows = max(1, self.rows // 2, min(rows, 2 * self.rows, self._max_rows))


#: Rows that are measured for the first buffer.
_SAMPLE: Final = 16


class BufferBudget:
    """Turns a byte budget into a number of rows, from the size of the previous buffer.

    Args:
        max_bytes: Intended maximum bytes of an encoded buffer.
        debloater: Lowers the limit for a slow receiver; `None` for never.
    """

    def __init__(
        self, max_rows: int = 16_384, max_bytes: int = 256 * 1024, debloater: BufferDebloater | None = None
    ) -> None:
        self._is_new = True
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._by_bytes = max_rows
        self._debloater = debloater

    @property
    def rows(self) -> int:
        debloater = self._debloater
        return self._by_bytes if debloater is None else min(self._by_bytes, debloater.rows)

    def consumed(self, rows: int, now: float, *, more: bool) -> None:
        if self._debloater is not None:
            self._debloater.consumed(rows, now, more=more)

    def weigh_first(self, rows: Sequence[Any], encode: Callable[[RowBatch], Buffer]) -> None:
        """Measure a few of the waiting rows, spread evenly, unless a buffer has been encoded already."""
        if self._is_new and rows:
            step = -(-len(rows) // _SAMPLE)
            self.observe(encode(RowBatch(list(rows[::step]))))

    def observe(self, buffer: Buffer) -> None:
        self._is_new = False
        if buffer.rows:
            bytes_per_row = max(1.0, len(buffer.payload) / buffer.rows)
            self._by_bytes = max(1, min(self._max_rows, int(self._max_bytes / bytes_per_row)))
