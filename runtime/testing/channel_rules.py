"""The invariants of the data plane, checked on every frame that a simulated job sends.

Sequence numbers have no gaps. Nothing follows the end of a channel. A channel never has more elements
outstanding than it has credits. An aligned barrier ends its frame, and barrier ids only grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.record.element_codec import decode_element
from penstock.runtime.record.elements import (
    Buffer,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
    StreamStatus,
    Watermark,
)

_NEED_CREDIT: Final = (Buffer, Watermark, StreamStatus)


class ChannelRules:
    """Checks the frames of all channels of one attempt.

    Args:
        credits: Credits of each channel.

    Attributes:
        most_outstanding: Most elements with a credit that were outstanding on one channel.

    Example:
        >>> from penstock.runtime.snapshot.subtask_id import SubtaskId
        >>> from penstock.runtime.record.element_codec import encode_element
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
        known, decoded = self._channels[channel], [decode_element(element) for element in elements]
        broken = known.broken_rule(first, decoded, self._credits)
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

    def broken_rule(self, first: int, elements: Sequence[StreamElement], credits: int) -> str | None:
        """Which rule a frame breaks that is sent now, in words."""
        if not elements:
            return "an empty frame"
        if first != self._next:
            return f"number {first} follows {self._next - 1}"
        if self._has_ended:
            return f"{elements} behind the end"
        self._next = first + len(elements)
        self._outstanding[first] = credited = sum(isinstance(e, _NEED_CREDIT) for e in elements)
        self.total += credited
        return self._broken_order(elements) or (
            f"{self.total} outstanding with {credits} credits" if self.total > credits else None
        )

    def credited(self, first: int) -> None:
        """The credits of a frame are back."""
        self.total -= self._outstanding.pop(first, 0)

    def _broken_order(self, elements: Sequence[StreamElement]) -> str | None:
        for position, element in enumerate(elements, 1):
            in_the_middle = position < len(elements)
            if isinstance(element, CheckpointBarrier):
                if element.options.unaligned:  # those overtake older ones, which come later then
                    continue
                if in_the_middle:
                    return f"{element} in the middle of a frame"
                if element.checkpoint_id <= self._newest_barrier:
                    return f"{element} follows barrier {self._newest_barrier}"
                self._newest_barrier = element.checkpoint_id
            elif isinstance(element, EndOfPartition):
                if in_the_middle:
                    return f"{element} in the middle of a frame"
                self._has_ended = True
        return None
