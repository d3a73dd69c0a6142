"""The network of one attempt: frames on their way, and the answers that come back.

A frame is a call from one process to another. It arrives after a while, perhaps twice, perhaps after a later
one. Its answer takes a while, too; what the sender makes of it is decided where real senders have it decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime.execution.deliveries import DeliveryAnswer, SenderStep, step_after
from penstock.runtime.execution.processes import Died
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.channel_rules import ChannelRules
from penstock.runtime.testing.simulation.cluster.links import Links
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

#: What callers hear of a process that the cluster has declared dead.
COUNTS_AS_DEAD: Final = Died("the cluster has declared its node dead")

#: What they hear of one that has died before its answer has left.
_DIED: Final = Died("killed by the simulation")

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

    def receiver_gone(self, channel: OutputChannelSpec) -> None:
        """The receiver is gone."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedFrame:
    """One deliver call.

    Attributes:
        network: Of its sender.
        channel: Receiver and its number for the channel.
        role: The role that is meant.
        first: Sequence number of the first element.
        elements: Encoded elements.
    """

    network: AttemptNetwork
    channel: OutputChannelSpec
    role: Role
    first: int
    elements: Sequence[bytes]

    @property
    def end(self) -> int:
        """Number after the last element."""
        return self.first + len(self.elements)

    def __str__(self) -> str:
        receiver, number = self.channel.receiver, self.channel.channel
        return f"frame {self.network.sender.id} -> {receiver} (channel {number}) {self.first}..{self.end - 1}"


class Receiver(Protocol):
    """Where frames arrive: a process."""

    @property
    def id(self) -> str:
        """Names it."""
        ...

    @property
    def answers_are_lost(self) -> bool:
        """Whether it has died before its last answers have left."""
        ...

    def deliver(self, frame: SimulatedFrame) -> None:
        """Take a frame."""
        ...


class AttemptNetwork:
    """All outgoing channels of one attempt of a subtask; see the module's text.

    Args:
        world: Decides how long things take.
        sender: Who sends.
        credits: Of each channel.
        process: Where the sender runs.
        links: Whom it reaches.

    Attributes:
        sender: Who sends.
    """

    def __init__(self, world: World, sender: Sender, credits: int, process: str, links: Links) -> None:
        self.sender = sender
        self._world = world
        self._process = process
        self._links = links
        self._receivers: Mapping[SubtaskId, tuple[Receiver, Role]] = {}
        self._rules = ChannelRules(credits)
        self._ended: set[OutputChannelSpec] = set()
        self._slow: dict[OutputChannelSpec, float] = {}
        self._arrived: dict[OutputChannelSpec, int] = {}

    def connect(self, receivers: Mapping[SubtaskId, tuple[Receiver, Role]]) -> None:
        """These are the processes that hold the roles of receivers."""
        self._receivers = receivers

    def send(self, channel: OutputChannelSpec, first: int, elements: Sequence[bytes]) -> None:
        """Put a frame on its way.

        Raises:
            AssertionError: It breaks a rule of the data plane.
        """
        self._rules.sent(self.sender.id, channel, first, elements)
        if channel not in self._ended and channel.receiver in self._receivers:
            role = self._receivers[channel.receiver][1]
            self._travel(SimulatedFrame(self, channel, role, first, list(elements)))

    def answer(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        """The deliver call of a frame has ended; the sender is notified of it after a while."""
        self._world.send(Happening.CREDIT, lambda: self._answer_arrives(frame, answer), answer, "to", frame)

    def outstanding(self, channel: OutputChannelSpec) -> int:
        """How many elements with a credit are outstanding on a channel."""
        return self._rules.outstanding(channel)

    def _answer_arrives(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        called = self._receivers[frame.channel.receiver][0]
        if called.answers_are_lost:
            answer = _DIED
        if self._links.is_whole:
            self._answered(frame, answer)
            return
        receiver = called.id
        arrives, gone = lambda: self._answered(frame, answer), lambda: self._answered(frame, COUNTS_AS_DEAD)
        self._links.carry(Happening.CREDIT, self._process, receiver, arrives, gone, answer, "to", frame)

    def _answered(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        match step_after(answer):
            case SenderStep.TAKE_CREDIT:
                self._rules.credited(frame.channel, frame.first)
                self.sender.frame_consumed(frame.channel, frame.first)
            case SenderStep.END_CHANNEL:
                if frame.channel not in self._ended:
                    self._ended.add(frame.channel)
                    self.sender.receiver_gone(frame.channel)
            case SenderStep.SEND_AGAIN:
                at = self._world.clock.monotonic() + RESEND_DELAY
                self._world.agenda.add(Happening.FRAME, lambda: self._arrive(frame), "again", frame, at=at)

    def _travel(self, frame: SimulatedFrame) -> None:
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

    def _arrive(self, frame: SimulatedFrame) -> None:
        if self._world.repeats(FaultKind.FRAME_REPEATED):
            self._travel(frame)
        arrived = self._arrived.get(frame.channel, 0)
        self._world.counts.happened(FaultKind.FRAME_OVERTAKEN, int(arrived > frame.first))
        self._arrived[frame.channel] = max(arrived, frame.end)
        receiver = self._receivers[frame.channel.receiver][0]
        if self._links.is_whole:
            receiver.deliver(frame)
            return
        arrives, gone = lambda: receiver.deliver(frame), lambda: self.answer(frame, COUNTS_AS_DEAD)
        self._links.carry(Happening.FRAME, self._process, receiver.id, arrives, gone, frame)
