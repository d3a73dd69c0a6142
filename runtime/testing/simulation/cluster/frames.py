"""The network of one attempt: frames on their way, and the credits that come back.

A frame is a call from one process to another. It arrives after a while, perhaps twice, perhaps after a later
one; its answer, which is the sender's credit, is given when the receiver has consumed it, and takes a while,
too. A receiver that is not there yet is called again a little later; one that runs a newer attempt answers
"stale", which is no credit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.channel_rules import ChannelRules
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

#: Seconds after which a receiver that was not there is called again.
RESEND_DELAY: Final = 0.2


class Sender(Protocol):
    """Who sent a frame."""

    @property
    def id(self) -> SubtaskId:
        """The sending subtask."""
        ...

    def frame_consumed(self, channel: OutputChannelSpec, first: int) -> None:
        """The frame was consumed."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One deliver call.

    Attributes:
        network: Of its attempt.
        sender: Who is given the credit.
        channel: Receiver and its number for the channel.
        first: Sequence number of the first element.
        elements: Encoded elements.
    """

    network: AttemptNetwork
    sender: Sender
    channel: OutputChannelSpec
    first: int
    elements: Sequence[bytes]

    @property
    def end(self) -> int:
        """Number after the last element."""
        return self.first + len(self.elements)

    @property
    def attempt(self) -> int:
        """The attempt of its sender."""
        return self.network.attempt

    def __str__(self) -> str:
        receiver, number = self.channel.receiver, self.channel.channel
        return f"frame {self.sender.id} -> {receiver} (channel {number}) {self.first}..{self.end - 1}"


class Receiver(Protocol):
    """Where frames arrive: a process."""

    def deliver(self, frame: Frame) -> None:
        """Take a frame."""
        ...


class AttemptNetwork:
    """All channels of one attempt; see the module's text.

    Args:
        world: Decides how long things take.
        attempt: The attempt.
        receivers: The processes.
        credits: Credits of each channel.
    """

    def __init__(
        self, world: World, attempt: int, receivers: dict[SubtaskId, Receiver], credits: int
    ) -> None:
        self.attempt = attempt
        self._world = world
        self._receivers = receivers
        self._rules = ChannelRules(credits)
        self._slow: dict[OutputChannelSpec, float] = {}
        self._arrived: dict[OutputChannelSpec, int] = {}

    def send(self, sender: Sender, channel: OutputChannelSpec, first: int, elements: Sequence[bytes]) -> None:
        """Put a frame on its way.

        Raises:
            AssertionError: It breaks a rule of the data plane.
        """
        self._rules.sent(sender.id, channel, first, elements)
        self._travel(Frame(self, sender, channel, first, list(elements)))

    def send_again(self, frame: Frame) -> None:
        """The receiver was not there."""
        at = self._world.clock.monotonic() + RESEND_DELAY
        self._world.agenda.add(Happening.FRAME, lambda: self._arrive(frame), "again", frame, at=at)

    def answer(self, frame: Frame) -> None:
        """The receiver has consumed a frame: its credits go back."""

        def credited() -> None:
            self._rules.credited(frame.channel, frame.first)
            frame.sender.frame_consumed(frame.channel, frame.first)

        self._world.send(Happening.CREDIT, credited, "credit for", frame)

    def outstanding(self, channel: OutputChannelSpec) -> int:
        """How many elements with a credit are outstanding on a channel."""
        return self._rules.outstanding(channel)

    def _travel(self, frame: Frame) -> None:
        at = self._world.arrival(self._slowness(frame.channel))
        self._world.agenda.add(Happening.FRAME, lambda: self._arrive(frame), frame, at=at)

    def _slowness(self, channel: OutputChannelSpec) -> float:
        weather = self._world.weather
        if not weather.slow_channels:
            return 0.0
        slowness = self._slow.get(channel)
        if slowness is None:
            slowness = weather.slowness if self._world.draws.chance(weather.slow_channels) else 0.0
            self._slow[channel] = slowness
            self._world.counts.happened(FaultKind.SLOW_CHANNEL, int(slowness > 0))
        return slowness

    def _arrive(self, frame: Frame) -> None:
        if self._world.repeats(FaultKind.FRAME_REPEATED):
            self._travel(frame)
        arrived = self._arrived.get(frame.channel, 0)
        self._world.counts.happened(FaultKind.FRAME_OVERTAKEN, int(arrived > frame.first))
        self._arrived[frame.channel] = max(arrived, frame.end)
        self._receivers[frame.channel.receiver].deliver(frame)
