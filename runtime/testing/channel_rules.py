"""The invariants of the data plane, checked on every frame that a simulated job sends.

Sequence numbers have no gaps. Nothing follows the end of a channel. A channel never has more elements
outstanding than it has credits. An aligned barrier ends its frame, and barrier ids only grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.record.element_codec import ElementKind, decode_element, kind_of
from penstock.runtime.record.elements import CheckpointBarrier

_NEED_CREDIT: Final = (ElementKind.BUFFER, ElementKind.WATERMARK, ElementKind.STREAM_STATUS)


class ChannelRules:
    """Checks the frames of all channels of one attempt.

    Args:
        credits: Credits of each channel.

    Attributes:
        most_outstanding: Most elements with a credit that were outstanding on one channel.

    Example:
        >>> from penstock.runtime.snapshot.subtask_id import SubtaskId
        >>> from penstock.runtime.record.element_codec import encode_element
        >>> from penstock.runtime.record.elements import Watermark
        >>> channel = OutputChannelSpec(SubtaskId("map", 0), 0)
        >>> rules = ChannelRules(credits=1)
        >>> rules.sent("read[0]", channel, 0, [encode_element(Watermark(5))])
        >>> rules.sent("read[0]", channel, 2, [encode_element(Watermark(6))])
        Traceback (most recent call last):
        ...
        AssertionError: read[0] -> map[0] (channel 0): number 2 follows 0
    """

    def __init__(self, credits: int) -> None:
        self._credits = credits
        self._channels: defaultdict[OutputChannelSpec, _Channel] = defaultdict(_Channel)
        self.most_outstanding = 0

    def sent(self, sender: object, channel: OutputChannelSpec, first: int, elements: Sequence[bytes]) -> None:
        """A frame is sent.

        Raises:
            AssertionError: It breaks a rule.
        """
        known = self._channels[channel]
        broken = known.broken_rule(first, elements, self._credits)
        assert broken is None, f"{sender} -> {channel.receiver} (channel {channel.channel}): {broken}"
        self.most_outstanding = max(self.most_outstanding, known.total)

    def credited(self, channel: OutputChannelSpec, first: int) -> None:
        """The credits of a frame are back."""
        self._channels[channel].credited(first)

    def outstanding(self, channel: OutputChannelSpec) -> int:
        """How many elements with a credit are outstanding."""
        return self._channels[channel].total


class _Channel:
    """What was sent on one channel."""

    __slots__ = ("_has_ended", "_newest_barrier", "_next", "_outstanding", "total")

    def __init__(self) -> None:
        self._next = 0
        self._has_ended = False
        self._newest_barrier = -1
        self._outstanding: dict[int, int] = {}
        self.total = 0

    def broken_rule(self, first: int, elements: Sequence[bytes], credits: int) -> str | None:
        """Which rule a frame breaks that is sent now, in words."""
        kinds = [kind_of(element) for element in elements]
        if not elements:
            return "an empty frame"
        if first != self._next:
            return f"number {first} follows {self._next - 1}"
        if self._has_ended:
            return f"{[decode_element(element) for element in elements]} behind the end"
        self._next = first + len(elements)
        self._outstanding[first] = credited = sum(kind in _NEED_CREDIT for kind in kinds)
        self.total += credited
        return self._broken_order(elements, kinds) or (
            f"{self.total} outstanding with {credits} credits" if self.total > credits else None
        )

    def credited(self, first: int) -> None:
        """The credits of a frame are back."""
        self.total -= self._outstanding.pop(first, 0)

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
