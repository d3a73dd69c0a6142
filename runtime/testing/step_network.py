"""`StepNetwork`: all channels of a job in one process; frames come late, in any order, and twice.

It does what Ray does to calls between actors: a frame is on its way until somebody takes it out, in whatever
order; its answer, which is the sender's credit, is then on its way back. A frame may be taken out and stay,
as after a call that was lost and is sent again.

Every frame is held against the rules of the data plane as it is sent (`ChannelRules`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.channel_rules import ChannelRules


@dataclass(frozen=True, slots=True)
class Frame:
    """One deliver call.

    Attributes:
        sender: Who sent it.
        channel: Receiver and its number for the channel.
        first: Sequence number of the first element.
        elements: Encoded elements.
    """

    sender: SubtaskId
    channel: OutputChannelSpec
    first: int
    elements: Sequence[bytes]

    @property
    def end(self) -> int:
        """Number after the last element."""
        return self.first + len(self.elements)


@dataclass(frozen=True, slots=True)
class StepNetworkStatistics:
    """What went through the network.

    Attributes:
        frames: Frames sent.
        repeated: Frames that arrived more than once.
        overtaken: Frames that arrived after a later one of their channel.
        most_outstanding: Most elements with a credit that were outstanding on one channel.
    """

    frames: int
    repeated: int
    overtaken: int
    most_outstanding: int


class StepNetwork:
    """Holds what is on its way; see the module's text.

    Args:
        credits: Credits of each channel.

    Attributes:
        frames: Frames on their way, oldest first.
        answers: Consumed frames whose senders have not been told, oldest first.
    """

    def __init__(self, credits: int) -> None:
        self._rules = ChannelRules(credits)
        self.frames: list[Frame] = []
        self.answers: list[Frame] = []
        self._waiting: dict[tuple[SubtaskId, int], list[Frame]] = {}
        self._arrived: Counter[OutputChannelSpec] = Counter()
        self._sent = self._repeated = self._overtaken = 0

    def send(
        self, sender: SubtaskId, channel: OutputChannelSpec, first: int, elements: Sequence[bytes]
    ) -> None:
        """Put a frame on its way.

        Raises:
            AssertionError: It breaks a rule of the data plane.
        """
        frame = Frame(sender, channel, first, list(elements))
        self._rules.sent(sender, channel, first, elements)
        self._sent += 1
        self.frames.append(frame)

    def take(self, index: int, *, stays: bool = False) -> Frame:
        """A frame arrives; hand it to its receiver afterwards.

        Args:
            index: Which one of `frames`.
            stays: It will arrive once more.
        """
        frame = self.frames[index] if stays else self.frames.pop(index)
        self._repeated += stays
        self._overtaken += self._arrived[frame.channel] > frame.first
        self._arrived[frame.channel] = max(self._arrived[frame.channel], frame.end)
        self._waiting.setdefault((frame.channel.receiver, frame.channel.channel), []).append(frame)
        return frame

    def consumed(self, receiver: SubtaskId, channel: int, next_sequence_number: int) -> None:
        """A receiver has consumed everything below this number: those frames are answered."""
        waiting = self._waiting.get((receiver, channel), [])
        self.answers += [frame for frame in waiting if frame.end <= next_sequence_number]
        waiting[:] = [frame for frame in waiting if frame.end > next_sequence_number]

    def receiver_finished(self, receiver: SubtaskId) -> None:
        """A receiver has left: whatever still comes for it is answered at once."""
        for (waiting_for, channel), frames in self._waiting.items():
            if waiting_for == receiver:
                self.consumed(receiver, channel, max((frame.end for frame in frames), default=0))

    def take_answer(self, index: int) -> Frame:
        """An answer arrives; tell the frame's sender afterwards."""
        frame = self.answers.pop(index)
        self._rules.credited(frame.channel, frame.first)
        return frame

    def statistics(self) -> StepNetworkStatistics:
        """What went through."""
        most = self._rules.most_outstanding
        return StepNetworkStatistics(self._sent, self._repeated, self._overtaken, most)
