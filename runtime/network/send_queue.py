"""Queue of a channel that waits for credits: encoded elements in the order of emission, taken out as frames.

Buffers, watermarks and stream status need a credit each. Barriers, markers and ends of data need none. They
do not pass what stands in front of them; only an unaligned barrier is put first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from penstock.runtime.record.element_codec import ElementKind, encode_element, kind_of, rows_in
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    Event,
    StreamStatus,
    Watermark,
)

#: Kinds of elements that need a credit.
_NEED_CREDIT: Final = (ElementKind.BUFFER, ElementKind.WATERMARK, ElementKind.STREAM_STATUS)


class OutgoingFrame(NamedTuple):
    elements: list[bytes]
    credits: int
    rows: int


@dataclass(slots=True)
class _Queued:
    data: bytes
    needs_credit: bool
    rows: int = 0
    is_buffer: bool = False
    is_watermark: bool = False
    ends_frame: bool = False
    is_captured: bool = True
    barrier: CheckpointBarrier | None = None


class SendQueue:
    """The elements of one channel that wait to be sent.

    Example:
        >>> queue = SendQueue()
        >>> queue.add_event(Watermark(5))
        >>> queue.add_event(Watermark(7))  # in the place of the older one
        >>> len(queue), len(queue.take_frame(0).elements), len(queue.take_frame(1).elements)
        (1, 0, 1)
    """

    def __init__(self) -> None:
        self._elements: deque[_Queued] = deque()
        self.buffers = 0

    def __len__(self) -> int:
        return len(self._elements)

    def add_buffer(self, buffer: Buffer) -> None:
        self._elements.append(
            _Queued(encode_element(buffer), needs_credit=True, rows=buffer.rows, is_buffer=True)
        )
        self.buffers += 1

    def add_event(self, event: Event) -> None:
        """Add an event at the end; a watermark takes the place of one that is the last."""
        is_watermark = isinstance(event, Watermark)
        if is_watermark and self._elements and self._elements[-1].is_watermark:
            self._elements.pop()
        self._elements.append(
            _Queued(
                encode_element(event),
                needs_credit=is_watermark or isinstance(event, StreamStatus),
                ends_frame=isinstance(event, CheckpointBarrier),
                is_watermark=is_watermark,
                is_captured=not isinstance(
                    event, CheckpointBarrier | CancelCheckpointMarker | EndOfPartition
                ),
                barrier=event if isinstance(event, CheckpointBarrier) else None,
            )
        )

    def add_restored(self, data: bytes) -> None:
        """Add an element that is encoded already: it was overtaken in a checkpoint."""
        kind = kind_of(data)
        is_buffer, is_watermark = kind is ElementKind.BUFFER, kind is ElementKind.WATERMARK
        self._elements.append(_Queued(data, kind in _NEED_CREDIT, rows_in(data), is_buffer, is_watermark))
        self.buffers += is_buffer

    def put_first(self, barrier: CheckpointBarrier) -> None:
        first = _Queued(encode_element(barrier), needs_credit=False, is_captured=False, barrier=barrier)
        self._elements.appendleft(first)

    def captured(self) -> list[bytes]:
        """Elements that a barrier overtakes when it is put first, as far as a checkpoint stores them."""
        return [queued.data for queued in self._elements if queued.is_captured]

    def has_barrier(self, checkpoint_id: int) -> bool:
        return self._place_of(checkpoint_id) is not None

    def take_barrier(self, checkpoint_id: int) -> tuple[CheckpointBarrier, list[bytes]] | None:
        """Take the barrier of a checkpoint out, with the elements in front of it that are to be stored."""
        place = self._place_of(checkpoint_id)
        if place is None:
            return None
        barrier = self._elements[place].barrier
        assert barrier is not None
        overtaken = [queued.data for queued in islice(self._elements, place) if queued.is_captured]
        del self._elements[place]
        return barrier, overtaken

    def take_frame(self, credits: int) -> OutgoingFrame:
        """Take out what may be sent together: up to an aligned barrier or the last credit; may be empty."""
        elements: list[bytes] = []
        credited = rows = 0
        while self._elements:
            head = self._elements[0]
            if head.needs_credit and credited >= credits:
                break
            self._elements.popleft()
            elements.append(head.data)
            rows += head.rows
            if head.needs_credit:
                credited += 1
                self.buffers -= head.is_buffer
            if head.ends_frame:
                break
        return OutgoingFrame(elements, credited, rows)

    def _place_of(self, checkpoint_id: int) -> int | None:
        barriers = ((place, queued.barrier) for place, queued in enumerate(self._elements))
        return next((place for place, b in barriers if b and b.checkpoint_id == checkpoint_id), None)
