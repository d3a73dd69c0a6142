"""The receiving end of one channel: restores the order in which the elements were sent.

An async actor starts its calls in any order, and a sender repeats a call that was lost. So frames arrive
late, early, twice, or split differently.

Every element has a sequence number, and the channel keeps the next one that it expects. A frame that begins
with that number, while no gap is open, goes straight to the queue (the usual case). Otherwise, elements below
the expected number and elements that already wait are duplicates: they are dropped. Higher ones wait until
the gap before them closes.

Elements are decoded once they are in order, not when they are consumed. So the end of the channel, damaged
bytes and events are known before the buffers ahead of them are processed. A barrier is known even before
it is in order (`take_announced`): an unaligned checkpoint begins when its barrier is announced. The barrier's
sequence number is its position: all elements with lower numbers belong to the checkpoint.

After a restore a channel may begin with elements that were in flight. They have no numbers, so the sender
still counts from 0.

The channel must never hand over an element twice, or while a lower number is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NoReturn

from penstock.runtime.errors import PenstockError, StreamCorruptError
from penstock.runtime.ports import Clock
from penstock.runtime.record.element_codec import ElementKind, EncodedElement, decode_element
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, EndOfPartition, StreamElement


class MissingElementsError(PenstockError):
    """An element of a channel did not arrive in time although later ones did: a call was lost."""


class InputChannel:
    """One incoming channel; see the module's docstring. Numbers begin at 0."""

    def __init__(self, index: int, clock: Clock, sender: str = "unknown sender") -> None:
        self.index = index
        self.sender = sender
        #: Number of the next element to consume; all elements below it are consumed.
        self.consumed = 0
        #: Monotonic time since which the next expected element has been missing; `None` without a gap.
        self.gap_since: float | None = None
        #: Number of elements that arrived before an earlier one.
        self.reordered = 0
        self._clock = clock
        self._ready: deque[StreamElement] = deque()
        self._early: dict[int, EncodedElement] = {}
        self._announced: list[CheckpointBarrier] = []
        self._restored = 0
        self._expected = 0
        self._ended = False
        #: Payload bytes of the buffers that have arrived in order, each counted once.
        self.received_bytes = 0

    def __str__(self) -> str:
        return f"channel {self.index} (from {self.sender})"

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def has_restored(self) -> bool:
        return self._restored > 0

    @property
    def has_ended(self) -> bool:
        """Whether the channel's end has been consumed."""
        return self._ended and not self._ready

    @property
    def queued(self) -> int:
        """Number of elements in order that wait to be consumed, without the restored ones."""
        return len(self._ready) - self._restored

    @property
    def early(self) -> int:
        """Number of elements that wait for an earlier one to arrive."""
        return len(self._early)

    @property
    def waiting(self) -> tuple[StreamElement, ...]:
        """Elements that arrived in order and wait to be consumed, oldest first, with the restored ones."""
        return tuple(self._ready)

    def restore(self, elements: Sequence[StreamElement]) -> None:
        """Queue the elements that were in flight at a checkpoint; call it before anything arrives."""
        if self._expected or self._ready:
            msg = f"{self}: in-flight elements must be restored before anything arrives"
            raise ValueError(msg)
        self._ready.extend(elements)
        self._restored = len(elements)

    def receive(
        self, first_sequence_number: int, elements: Sequence[EncodedElement]
    ) -> Sequence[StreamElement]:
        """Take a frame; return the elements that are in order now.

        Raises:
            StreamCorruptError: An element can't be decoded, comes after the channel's end, or has a
                negative number.
        """
        if first_sequence_number == self._expected and not self._early:
            return self._accept(elements)
        return self._receive_out_of_order(first_sequence_number, elements)

    def take_announced(self) -> list[CheckpointBarrier]:
        """Return the barriers that arrived since the last call while earlier elements were missing."""
        if not self._announced:
            return []
        announced, self._announced = self._announced, []
        return announced

    def poll(self) -> tuple[int, StreamElement] | None:
        """Consume the next element; return its number (-1 if restored) and the element, or `None`."""
        if not self._ready:
            return None
        if self._restored:
            self._restored -= 1
            return -1, self._ready.popleft()
        number = self.consumed
        self.consumed = number + 1
        return number, self._ready.popleft()

    def describe_gap(self) -> str:
        first = min(self._early, default=self._expected)
        return (
            f"{self}: element {self._expected} has not arrived; later elements that wait for it: "
            f"{len(self._early)}, starting at number {first}"
        )

    def _receive_out_of_order(
        self, first: int, elements: Sequence[EncodedElement]
    ) -> Sequence[StreamElement]:
        if first < 0:
            msg = f"{self}: a frame begins with the impossible sequence number {first}"
            raise StreamCorruptError(msg)
        early, expected = self._early, self._expected
        waiting = len(early)
        for number, data in enumerate(elements, first):
            if number >= expected and number not in early:
                early[number] = data
        if expected not in early:
            self.reordered += len(early) - waiting
        in_order = []
        while expected in early:
            in_order.append(early.pop(expected))
            expected += 1
        accepted = self._accept(in_order)
        if early:
            self._announce(range(first, first + len(elements)))
        if not early:
            self.gap_since = None
        elif in_order or self.gap_since is None:
            self.gap_since = self._clock.monotonic()
        return accepted

    def _announce(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            data = self._early.get(number)
            if data and data[0] == ElementKind.BARRIER:
                try:
                    barrier = decode_element(data)
                except StreamCorruptError:
                    continue  # refused, with its number, once it is in order
                assert isinstance(barrier, CheckpointBarrier)
                self._announced.append(barrier)

    def _accept(self, elements: Sequence[EncodedElement]) -> Sequence[StreamElement]:
        try:
            decoded = list(map(decode_element, elements))
        except StreamCorruptError as error:
            self._refuse_damaged(elements, error)
        for number, element in enumerate(decoded, self._expected):
            if self._ended:
                msg = f"{self}: element {number} ({type(element).__name__}) comes after the channel's end"
                raise StreamCorruptError(msg)
            if type(element) is Buffer:
                self.received_bytes += len(element.payload)
            elif type(element) is EndOfPartition:
                self._ended = True
        self._ready.extend(decoded)
        self._expected += len(decoded)
        return decoded

    def _refuse_damaged(self, elements: Sequence[EncodedElement], error: StreamCorruptError) -> NoReturn:
        """Decode the elements again, one by one, to name the number of the damaged one."""
        for number, data in enumerate(elements, self._expected):
            try:
                decode_element(data)
            except StreamCorruptError:
                msg = (
                    f"{self}, element {number}: {error}. "
                    "Check that all nodes run the same version of penstock, then restart the job."
                )
                raise StreamCorruptError(msg) from error
        raise error
