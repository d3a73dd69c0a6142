"""The invariants of the data plane, checked on every frame that a simulated job sends.

Sequence numbers have no gaps. Nothing follows the end of a channel. A channel never has more elements
outstanding than it has credits. An aligned barrier ends its frame, and barrier ids only grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.record.element_codec import ElementKind, decode_element, kind_of
from penstock.runtime.record.elements import CheckpointBarrier

_NEED_CREDIT: Final = (ElementKind.BUFFER, ElementKind.WATERMARK, ElementKind.STREAM_STATUS)


class ChannelRules:
    """Checks the frames of one channel of one attempt.

    Attributes:
        outstanding: How many elements with a credit are outstanding.

    Example:
        >>> from penstock.runtime.snapshot.subtask_id import SubtaskId
        >>> from penstock.runtime.record.element_codec import encode_element
        >>> from penstock.runtime.record.elements import Watermark
        >>> rules = ChannelRules("read[0]", OutputChannelSpec(SubtaskId("map", 0), 0), credits=1)
        >>> rules.sent(0, [encode_element(Watermark(5))])
        >>> rules.sent(2, [encode_element(Watermark(6))])
        Traceback (most recent call last):
        ...
        AssertionError: read[0] -> map[0] (channel 0): number 2 follows 0
    """

    __slots__ = (
        "_channel",
        "_credits",
        "_has_ended",
        "_in_flight",
        "_newest_barrier",
        "_next",
        "_sender",
        "outstanding",
    )

    def __init__(self, sender: object, channel: OutputChannelSpec, credits: int) -> None:
        self._sender = sender
        self._channel = channel
        self._credits = credits
        self._next = 0
        self._has_ended = False
        self._newest_barrier = -1
        self._in_flight: dict[int, int] = {}
        self.outstanding = 0

    def sent(self, first: int, elements: Sequence[bytes]) -> None:
        """A frame is sent.

        Raises:
            AssertionError: It breaks a rule.
        """
        broken = self._broken_rule(first, elements)
        to = f"{self._channel.receiver} (channel {self._channel.channel})" if broken else ""
        assert broken is None, f"{self._sender} -> {to}: {broken}"

    def credited(self, first: int) -> None:
        """The credits of a frame are back."""
        self.outstanding -= self._in_flight.pop(first, 0)

    def _broken_rule(self, first: int, elements: Sequence[bytes]) -> str | None:
        """Which rule a frame breaks that is sent now, in words."""
        if not elements:
            return "an empty frame"
        if first != self._next:
            return f"number {first} follows {self._next - 1}"
        if self._has_ended:
            return f"{[decode_element(element) for element in elements]} behind the end"
        kinds = [kind_of(element) for element in elements]
        self._next = first + len(elements)
        credited = 0
        for kind in kinds:
            credited += kind in _NEED_CREDIT
        self._in_flight[first] = credited
        self.outstanding += credited
        return self._broken_order(elements, kinds) or (
            f"{self.outstanding} outstanding with {self._credits} credits"
            if self.outstanding > self._credits
            else None
        )

    def _broken_order(self, elements: Sequence[bytes], kinds: Sequence[ElementKind]) -> str | None:
        for position, kind in enumerate(kinds, 1):
            if kind is ElementKind.BARRIER:
                barrier = decode_element(elements[position - 1])
                assert isinstance(barrier, CheckpointBarrier), "its kind says so"
                if barrier.options.unaligned:  # those overtake older ones, which come later then
                    continue
                if position < len(kinds):
                    return f"{barrier} in the middle of a frame"
                if barrier.checkpoint_id <= self._newest_barrier:
                    return f"{barrier} follows barrier {self._newest_barrier}"
                self._newest_barrier = barrier.checkpoint_id
            elif kind is ElementKind.END_OF_PARTITION:
                if position < len(kinds):
                    return f"{decode_element(elements[position - 1])} in the middle of a frame"
                self._has_ended = True
        return None
