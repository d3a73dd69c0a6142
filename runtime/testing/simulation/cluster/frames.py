"""The network of one attempt: frames on their way, and the answers that come back.

A frame is a call from one process to another. It arrives after a while, perhaps twice, perhaps after a later
one. Its answer takes a while, too; what the sender makes of it is decided where real senders have it decided.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class SimulatedFrame:
    """One deliver call; not a dataclass, because a run makes thousands.

    Attributes:
        network: Of its sender.
        receiver: The process that held the receiver's role when the sender was started.
        role: The role that is meant.
        first: Sequence number of the first element.
        end: Number after the last element.
        elements: Encoded elements.
    """

    __slots__ = ("channel", "elements", "end", "first", "network", "receiver", "role")

    def __init__(
        self,
        network: AttemptNetwork,
        channel: SimulatedChannel,
        to: tuple[Receiver, Role],
        first: int,
        elements: list[bytes],
    ) -> None:
        self.network = network
        self.channel = channel
        self.receiver, self.role = to
        self.first = first
        self.end = first + len(elements)
        self.elements = elements

    def __str__(self) -> str:
        receiver, number = self.channel.spec.receiver, self.channel.spec.channel
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


class SimulatedChannel:
    """One outgoing channel of an attempt.

    Attributes:
        spec: Receiver and its number for the channel.
        rules: Checks what is sent on it.
        to: The process that holds the receiver's role, and the role; `None` when nobody does.
        slowness: Most seconds that its frames take longer than others.
        arrived: Number after the last element that has arrived.
        has_ended: Whether its receiver takes nothing any more.
    """

    __slots__ = ("arrived", "has_ended", "rules", "slowness", "spec", "to")

    def __init__(
        self, spec: OutputChannelSpec, rules: ChannelRules, to: tuple[Receiver, Role] | None
    ) -> None:
        self.spec = spec
        self.rules = rules
        self.to = to
        self.slowness: float | None = None
        self.arrived = 0
        self.has_ended = False


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
        self._credits = credits
        self._process = process
        self._links = links
        self._receivers: Mapping[SubtaskId, tuple[Receiver, Role]] = {}
        self._channels: dict[OutputChannelSpec, SimulatedChannel] = {}

    def connect(self, receivers: Mapping[SubtaskId, tuple[Receiver, Role]]) -> None:
        """These are the processes that hold the roles of receivers."""
        self._receivers = receivers

    def send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        """Put a frame on its way.

        Raises:
            AssertionError: It breaks a rule of the data plane.
        """
        sent = self._channels.get(channel) or self._begin(channel)
        sent.rules.sent(first, elements)
        if sent.to is not None and not sent.has_ended:
            self._travel(SimulatedFrame(self, sent, sent.to, first, elements))

    def answer(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        """The deliver call of a frame has ended; the sender is notified of it after a while."""
        self._world.send(Happening.CREDIT, lambda: self._answer_arrives(frame, answer), answer, "to", frame)

    def outstanding(self, channel: OutputChannelSpec) -> int:
        """How many elements with a credit are outstanding on a channel."""
        sent = self._channels.get(channel)
        return 0 if sent is None else sent.rules.outstanding

    def _begin(self, spec: OutputChannelSpec) -> SimulatedChannel:
        rules = ChannelRules(self.sender.id, spec, self._credits)
        begun = self._channels[spec] = SimulatedChannel(spec, rules, self._receivers.get(spec.receiver))
        return begun

    def _answer_arrives(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        called = frame.receiver
        if called.answers_are_lost:
            answer = _DIED
        if self._links.is_whole:
            self._answered(frame, answer)
            return
        receiver = called.id
        arrives, gone = lambda: self._answered(frame, answer), lambda: self._answered(frame, COUNTS_AS_DEAD)
        self._links.carry(Happening.CREDIT, self._process, receiver, arrives, gone, answer, "to", frame)

    def _answered(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        channel = frame.channel
        match step_after(answer):
            case SenderStep.TAKE_CREDIT:
                channel.rules.credited(frame.first)
                self.sender.frame_consumed(channel.spec, frame.first)
            case SenderStep.END_CHANNEL:
                if not channel.has_ended:
                    channel.has_ended = True
                    self.sender.receiver_gone(channel.spec)
            case SenderStep.SEND_AGAIN:
                at = self._world.clock.monotonic() + RESEND_DELAY
                self._world.agenda.add(Happening.FRAME, lambda: self._arrive(frame), "again", frame, at=at)

    def _travel(self, frame: SimulatedFrame) -> None:
        at = self._world.arrival(self._slowness(frame.channel))
        self._world.agenda.add(Happening.FRAME, lambda: self._arrive(frame), frame, at=at)

    def _slowness(self, channel: SimulatedChannel) -> float:
        slowness = channel.slowness
        if slowness is None:
            weather, slowness = self._world.weather, 0.0
            if weather.slow_channels and self._world.draws.chance(weather.slow_channels):
                slowness = weather.slowness
            channel.slowness = slowness
            self._world.counts.happened(FaultKind.SLOW_CHANNEL, int(slowness > 0))
        return slowness

    def _arrive(self, frame: SimulatedFrame) -> None:
        if self._world.repeats(FaultKind.FRAME_REPEATED):
            self._travel(frame)
        channel = frame.channel
        if channel.arrived > frame.first:
            self._world.counts.happened(FaultKind.FRAME_OVERTAKEN)
        channel.arrived = max(channel.arrived, frame.end)
        receiver = frame.receiver
        if self._links.is_whole:
            receiver.deliver(frame)
            return
        arrives, gone = lambda: receiver.deliver(frame), lambda: self.answer(frame, COUNTS_AS_DEAD)
        self._links.carry(Happening.FRAME, self._process, receiver.id, arrives, gone, frame)
