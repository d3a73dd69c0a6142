"""Sender and receiver together: each element in flight is captured by exactly one of them.

Random emission, credits, frames in any order, consumption at any time, barriers that overtake at once or turn
unaligned later. PENSTOCK_DEEP=N takes N times as many examples.

* For a complete checkpoint, on every channel: the elements emitted in front of the barrier are three parts in
  order. They are those delivered before the trigger, those of the receiver, and those of the sender.
* Restored in that order, a new attempt delivers everything from there on exactly once and in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.barrier.factory import BarrierSettings, InFlightCapture, create_input_gate
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.network.result_subpartition import ResultSubpartition, SendFrame
from penstock.runtime.network.send_queue import BufferBudget
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import (
    Buffer,
    CheckpointBarrier,
    CheckpointOptions,
    RowBatch,
    StreamElement,
    Watermark,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

CODEC = BatchCodec()

#: What happens next, on which channel.
Schedule = list[tuple[str, int]]
ACTIONS = ["emit", "emit", "emit", "watermark", "flush", "deliver", "consume", "barrier", "turn", "time"]
schedules = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), min_size=1, max_size=60)


@dataclass
class Frame:
    channel: int
    first: int
    elements: list[bytes]


def items(elements: Sequence[StreamElement]) -> list[object]:
    """Records, and events that go with them, in order."""
    found: list[object] = []
    for element in elements:
        if isinstance(element, Buffer):
            batch = CODEC.decode(element)
            assert isinstance(batch, RowBatch)
            found += batch.rows
        else:
            assert isinstance(element, Watermark)
            found.append(element)
    return found


class Job:
    """Senders, a network that keeps no order, and one receiver."""

    def __init__(self, channels: int, credits: int, timeout: float | None) -> None:
        clock = ManualClock()
        self.timers = ManualTimers(clock)
        self.timeout = timeout
        self.network: list[Frame] = []
        self.barriers_sent: set[tuple[int, int]] = set()
        self.senders = [
            ResultSubpartition(CODEC, self.sender(c), credits, BufferBudget(max_rows=2))
            for c in range(channels)
        ]
        gate = InputGate(InputChannel(c, clock) for c in range(channels))
        barriers = BarrierSettings(unaligned=True, has_aligned_timeout=timeout is not None)
        self.input = create_input_gate(barriers, gate, clock, InFlightCapture(Writer(self), self.timers))
        self.input.set_listener(self)
        self.emitted: list[list[object]] = [[] for _ in range(channels)]
        self.got: list[list[object]] = [[] for _ in range(channels)]
        self.unanswered: dict[int, list[Frame]] = {c: [] for c in range(channels)}
        self.checkpoint_id = 0
        self.in_front: list[list[object]] = []
        self.at_trigger: dict[int, list[list[object]]] = {}
        self.received: dict[int, list[list[StreamElement]]] = {}
        self.overtaken: list[list[bytes]] = [[] for _ in range(channels)]
        self.is_input_complete = self.is_aligned = False

    def sender(self, channel: int) -> SendFrame:
        def send(first: int, elements: list[bytes]) -> None:
            self.network.append(Frame(channel, first, elements))
            for data in elements:
                if isinstance(element := decode_element(data), CheckpointBarrier):
                    assert (channel, element.checkpoint_id) not in self.barriers_sent
                    self.barriers_sent.add((channel, element.checkpoint_id))

        return send

    # -- task and writer ----------------------------------------------------------------------------------

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        self.at_trigger[barrier.checkpoint_id] = [list(got) for got in self.got]
        self.received[barrier.checkpoint_id] = [[] for _ in self.got]
        if not barrier.options.unaligned:
            self.is_aligned = True
            assert [list(got) for got in self.got] == self.in_front

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        raise AssertionError("one checkpoint after the other")

    # -- what happens -------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        waits = any(s.is_barrier_waiting(self.checkpoint_id) for s in self.senders)
        return self.is_aligned or (self.is_input_complete and not waits)

    def act(self, action: str, where: int) -> None:
        channel = where % len(self.senders)
        sender, emitted = self.senders[channel], self.emitted[channel]
        if action == "emit":
            rows = [f"{channel}.{len(emitted) + i}" for i in range(1 + where)]
            sender.add_rows(rows, None)
            emitted += rows
        elif action == "watermark" and not isinstance(emitted[-1] if emitted else None, Watermark):
            mark = Watermark(len(emitted))
            sender.add_event(mark)
            emitted.append(mark)
        elif action == "flush":
            sender.flush()
        elif action == "deliver" and self.network:
            self.deliver(self.network.pop(where % len(self.network)))
        elif action == "consume":
            self.consume_one()
        elif action == "barrier" and (self.checkpoint_id == 0 or self.is_complete):
            self.begin()
        elif action == "turn":
            self.turn(channel)
        elif action == "time":
            self.timers.advance(0.6)

    def begin(self) -> None:
        if self.checkpoint_id:
            self.check_cut()
        self.checkpoint_id += 1
        self.is_input_complete = self.is_aligned = False
        self.in_front = [list(emitted) for emitted in self.emitted]
        unaligned = self.timeout is None
        barrier = CheckpointBarrier(
            self.checkpoint_id, 0.0, CheckpointOptions(unaligned=unaligned, aligned_timeout=self.timeout)
        )
        self.overtaken = [[] for _ in self.senders]
        for channel, sender in enumerate(self.senders):
            if unaligned:
                self.overtaken[channel] = sender.overtake(barrier)
            else:
                sender.add_event(barrier)

    def turn(self, channel: int) -> None:
        overtaken = self.senders[channel].turn_unaligned(self.checkpoint_id)
        if overtaken is not None:
            assert self.overtaken[channel] == []
            self.overtaken[channel] = overtaken

    def deliver(self, frame: Frame) -> None:
        self.input.receive(frame.channel, frame.first, frame.elements)
        self.unanswered[frame.channel].append(frame)

    def consume_one(self) -> bool:
        polled = self.input.poll_next()
        if polled is not None:
            self.got[polled[0]] += items([polled[1]])
        for channel, frames in self.unanswered.items():
            done = self.input.consumed(channel)
            for frame in [f for f in frames if f.first + len(f.elements) <= done]:
                frames.remove(frame)
                self.senders[channel].consumed(frame.first, 0.0)
        return polled is not None

    def run_out(self) -> None:
        for sender in self.senders:
            sender.flush()
        while self.network or self.consume_one():
            while self.network:
                self.deliver(self.network.pop())

    def settle(self) -> None:
        """Let everything arrive; senders and receiver lose patience."""
        for channel in range(len(self.senders)):
            self.turn(channel)
        while self.network or self.consume_one() or self.timers.fire_next():
            while self.network:
                self.deliver(self.network.pop())
        self.run_out()

    def check_cut(self) -> None:
        at_trigger = self.at_trigger[self.checkpoint_id]
        received = self.received[self.checkpoint_id]
        for channel, in_front in enumerate(self.in_front):
            sent_later = items([decode_element(data) for data in self.overtaken[channel]])
            assert at_trigger[channel] + items(received[channel]) + sent_later == in_front


class Writer:
    def __init__(self, job: Job) -> None:
        self.job = job

    def start(self, checkpoint_id: int) -> None:
        assert checkpoint_id not in self.job.at_trigger

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        self.job.received[checkpoint_id][channel] += elements

    def finish_input(self, checkpoint_id: int) -> None:
        assert checkpoint_id == self.job.checkpoint_id
        self.job.is_input_complete = True

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        raise AssertionError("the senders' parts are collected by the job")

    def finish_output(self, checkpoint_id: int) -> None:
        raise AssertionError("the senders' parts are collected by the job")

    def abort(self, checkpoint_id: int) -> None:
        raise AssertionError("nothing is cancelled")


@settings(max_examples=130 * DEEP)
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, 1.0]), schedules, st.integers(0, 60))
def test_every_element_in_flight_is_captured_once_and_restored_in_order(
    channels: int, credits: int, timeout: float | None, schedule: Schedule, last_barrier: int
) -> None:
    job = Job(channels, credits, timeout)
    for number, (action, where) in enumerate(schedule):
        if number == last_barrier:
            job.act("barrier", 0)
        job.act(action, where)
    job.settle()
    assert job.got == job.emitted
    if job.checkpoint_id == 0:
        return
    assert job.is_complete
    job.check_cut()
    restored = Job(channels, credits, timeout)
    for channel, sender in enumerate(restored.senders):
        restored.input.restore(channel, job.received[job.checkpoint_id][channel])
        sender.restore(job.overtaken[channel])
        again = job.emitted[channel][len(job.in_front[channel]) :]
        for item in again:
            if isinstance(item, Watermark):
                sender.add_event(item)
            else:
                sender.add_rows([item], None)
    restored.run_out()
    for channel, got in enumerate(restored.got):
        done = job.at_trigger[job.checkpoint_id][channel]
        assert done + got == job.emitted[channel]
