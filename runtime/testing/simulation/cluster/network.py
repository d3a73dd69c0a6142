"""The network of a simulated job: reachable processes, frames in flight, and the rules for frames.

A *cut* puts some processes on an island. Calls between the island and the rest wait: the operating system
resends their packets until the cut is healed. If the cut lasts, the cluster declares all processes on the
island dead, and calls from the rest to the island fail. But the processes on the island continue. They step,
send each other frames, and reach the storage and the systems behind the sinks. They are *zombies*. When the
cut is healed, their calls to the rest arrive. A while later the cluster ends them.

A process may also be declared dead without a cut. It is then an island of its own, but its calls arrive.

The network of one attempt holds the frames in flight and their answers. A frame is a call from one process
to another. It arrives after a while, perhaps twice, perhaps after a later frame. Its answer takes a while,
too. The production code of senders handles the answer.

Every frame that a simulated job sends is checked against the invariants of the data plane. Sequence numbers
have no gaps. Nothing follows the end of a channel. A channel never uses more credits than it has. An aligned
barrier ends its frame, and ids of aligned barriers only grow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.runtime.execution.processes import DeliveryAnswer, Died, SenderStep, step_after
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.record.element_codec import ElementKind, decode_element, kind_of
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

if TYPE_CHECKING:
    from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
    from penstock.runtime.testing.simulation.cluster.running_task import RunningTask


class Reach(Enum):
    """The outcome of a call from one process to another."""

    OPEN = "arrives"
    WAITS = "waits for the end of a cut"
    GONE = "fails: its receiver counts as dead"


class Links:
    """The reachability of processes; see the module's docstring. Names of processes are unique in a job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut_off: set[str] = set()
        self._gone: dict[str, int] = {}
        self._islands = count(1)
        self._waiting: list[tuple[Happening, Callable[[], None], tuple[object, ...]]] = []
        #: Whether every process can reach every other process.
        self.is_whole = True

    @property
    def is_cut(self) -> bool:
        return bool(self._cut_off)

    def is_gone(self, name: str) -> bool:
        return name in self._gone

    @property
    def cut_off(self) -> Collection[str]:
        return sorted(self._cut_off)

    def reach(self, caller: str, called: str) -> Reach:
        if self.is_whole:
            return Reach.OPEN
        island = self._gone.get(called)
        if island is not None and self._gone.get(caller) != island:
            return Reach.GONE
        if (caller in self._cut_off) != (called in self._cut_off):
            return Reach.WAITS
        return Reach.OPEN

    def carry(
        self,
        kind: Happening,
        caller: str,
        called: str,
        arrive: Callable[[], None],
        lose: Callable[[], None],
        *what: object,
    ) -> None:
        """Call `arrive` when the receiver can be reached, or `lose` if the receiver counts as dead."""
        if self.is_whole:
            arrive()
            return
        match self.reach(caller, called):
            case Reach.OPEN:
                arrive()
            case Reach.GONE:
                lose()
            case Reach.WAITS:
                again = lambda: self.carry(kind, caller, called, arrive, lose, *what)  # noqa: E731
                self._waiting.append((kind, again, what))

    def starts(self, starter: str, started: str) -> None:
        if starter in self._cut_off:
            self._cut_off.add(started)
        if starter in self._gone:
            self._gone[started] = self._gone[starter]

    def cut(self, island: Collection[str]) -> None:
        self.is_whole = False
        self._cut_off.update(island)

    def declare_gone(self, island: Collection[str]) -> None:
        self.is_whole = False
        self._gone.update(dict.fromkeys(island, next(self._islands)))
        self._try_again()

    def heal(self) -> None:
        """Join both parts again; a process that counts as dead stays dead to the others."""
        self._cut_off.clear()
        self.is_whole = not self._gone
        self._try_again()

    def _try_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, act, what in waiting:
            self._world.agenda.add(kind, act, *what)


_NEED_CREDIT: Final = (ElementKind.BUFFER, ElementKind.WATERMARK, ElementKind.STREAM_STATUS)


class ChannelRules:
    """Checks the frames of one channel of one attempt.

    Example:
        >>> from penstock.runtime.snapshot.ids import SubtaskId
        >>> from penstock.runtime.record.element_codec import encode_element
        >>> from penstock.runtime.record.elements import Watermark
        >>> rules = ChannelRules("read[0]", OutputChannelSpec(SubtaskId("map", 0), 0), credits=1)
        >>> rules.sent(0, [encode_element(Watermark(5))])
        >>> rules.sent(2, [encode_element(Watermark(6))])
        Traceback (most recent call last):
        ...
        AssertionError: read[0] -> map[0] (channel 0): number 2 follows 0
    """

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
        """Fail if a frame breaks a rule."""
        if broken := self._broken_rule(first, elements):
            to = f"{self._channel.receiver} (channel {self._channel.channel})"
            msg = f"{self._sender} -> {to}: {broken}"
            raise AssertionError(msg)

    def credited(self, first: int) -> None:
        self.outstanding -= self._in_flight.pop(first, 0)

    def _broken_rule(self, first: int, elements: Sequence[bytes]) -> str | None:
        if not elements:
            return "an empty frame"
        if first != self._next:
            return f"number {first} follows {self._next - 1}"
        if self._has_ended:
            return f"{[decode_element(element) for element in elements]} after the end"
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
                if barrier.options.unaligned:  # it may overtake older barriers
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


#: Answer to calls to a process that the cluster has declared dead.
COUNTS_AS_DEAD: Final = Died("the cluster has declared its node dead")

#: Answer to calls to a process that died before it sent the answer.
KILLED: Final = Died("killed by the simulation")

#: Seconds after which a frame is sent again to a receiver that was not ready or not reached.
RESEND_DELAY: Final = 0.2


#: The processes that hold the roles of receivers, and the roles.
Receivers: TypeAlias = "Mapping[SubtaskId, tuple[SimulatedProcess, Role]]"


class SimulatedFrame:
    """A `deliver` call to the process that held the receiver's role when the sender was started."""

    __slots__ = ("channel", "elements", "end", "first", "network", "receiver", "role")

    def __init__(
        self,
        network: AttemptNetwork,
        channel: SimulatedChannel,
        to: tuple[SimulatedProcess, Role],
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


@dataclass(eq=False, slots=True)
class SimulatedChannel:
    """An outgoing channel of an attempt.

    Attributes:
        to: The process that holds the receiver's role, and the role; `None` when no process does.
        slowness: Maximum extra delay of its frames, in seconds; `None` before it is drawn.
        arrived: Sequence number after the last element that has arrived.
        has_ended: Whether its receiver takes no more frames.
    """

    spec: OutputChannelSpec
    rules: ChannelRules
    to: tuple[SimulatedProcess, Role] | None
    slowness: float | None = None
    arrived: int = 0
    has_ended: bool = False


class AttemptNetwork:
    """All outgoing channels of one attempt of a subtask in `process`; see the module's docstring."""

    def __init__(self, world: World, sender: RunningTask, credits: int, process: str, links: Links) -> None:
        self.sender = sender
        self._world = world
        self._credits = credits
        self._process = process
        self._links = links
        self._receivers: Receivers = {}
        self._channels: dict[OutputChannelSpec, SimulatedChannel] = {}

    def connect(self, receivers: Receivers) -> None:
        self._receivers = receivers

    def send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        """Put a frame on its way; fail if it breaks a rule of the data plane."""
        sent = self._channels.get(channel) or self._begin(channel)
        sent.rules.sent(first, elements)
        if sent.to is not None and not sent.has_ended:
            self._travel(SimulatedFrame(self, sent, sent.to, first, elements))

    def answer(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        """Answer the deliver call of a frame; the answer takes a while."""
        self._world.send(Happening.CREDIT, lambda: self._answer_arrives(frame, answer), answer, "to", frame)

    def outstanding(self, channel: OutputChannelSpec) -> int:
        sent = self._channels.get(channel)
        return 0 if sent is None else sent.rules.outstanding

    def _begin(self, spec: OutputChannelSpec) -> SimulatedChannel:
        rules = ChannelRules(self.sender.id, spec, self._credits)
        begun = self._channels[spec] = SimulatedChannel(spec, rules, self._receivers.get(spec.receiver))
        return begun

    def _answer_arrives(self, frame: SimulatedFrame, answer: DeliveryAnswer | Died) -> None:
        called = frame.receiver
        if called.answers_are_lost:
            answer = KILLED
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
            conditions, slowness = self._world.conditions, 0.0
            if conditions.slow_channels and self._world.draws.chance(conditions.slow_channels):
                slowness = conditions.slowness
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
