"""The invariants of the data plane, checked on every frame that a simulated job sends.

Sequence numbers have no gaps. Nothing follows the end of a channel. A channel never has more elements
outstanding than it has credits. An aligned barrier ends its frame, and barrier ids only grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
        self._next: Counter[OutputChannelSpec] = Counter()
        self._ended: set[OutputChannelSpec] = set()
        self._outstanding: dict[OutputChannelSpec, dict[int, int]] = {}
        self._newest_barrier: dict[OutputChannelSpec, int] = {}
        self.most_outstanding = 0

    def sent(self, sender: object, channel: OutputChannelSpec, first: int, elements: Sequence[bytes]) -> None:
        """A frame is sent.

        Raises:
            AssertionError: It breaks a rule.
        """
        way = f"{sender} -> {channel.receiver} (channel {channel.channel})"
        assert elements, f"{way}: an empty frame"
        expected = self._next[channel]
        assert first == expected, f"{way}: number {first} follows {expected - 1}"
        self._next[channel] = first + len(elements)
        decoded = [decode_element(element) for element in elements]
        assert channel not in self._ended, f"{way}: {decoded} behind the end"
        self._check_order(way, channel, decoded)
        outstanding = self._outstanding.setdefault(channel, {})
        outstanding[first] = sum(isinstance(e, Buffer | Watermark | StreamStatus) for e in decoded)
        total = sum(outstanding.values())
        self.most_outstanding = max(self.most_outstanding, total)
        assert total <= self._credits, f"{way}: {total} outstanding with {self._credits} credits"

    def credited(self, channel: OutputChannelSpec, first: int) -> None:
        """The credits of a frame are back."""
        self._outstanding[channel].pop(first, None)

    def outstanding(self, channel: OutputChannelSpec) -> int:
        """How many elements with a credit are outstanding."""
        return sum(self._outstanding.get(channel, {}).values())

    def _check_order(self, way: str, channel: OutputChannelSpec, elements: Sequence[StreamElement]) -> None:
        for position, element in enumerate(elements):
            is_last = position == len(elements) - 1
            if isinstance(element, CheckpointBarrier):
                assert is_last or element.options.unaligned, f"{way}: {element} in the middle of a frame"
                if not element.options.unaligned:  # those overtake older ones, which come later then
                    newest = self._newest_barrier.get(channel, -1)
                    assert element.checkpoint_id > newest, f"{way}: {element} follows barrier {newest}"
                    self._newest_barrier[channel] = element.checkpoint_id
            elif isinstance(element, EndOfPartition):
                assert is_last, f"{way}: {element} in the middle of a frame"
                self._ended.add(channel)
