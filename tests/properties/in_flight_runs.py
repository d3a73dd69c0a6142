"""Random plans for one input with unaligned checkpoints, and runs that check the laws at every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from channel_streams import OFTEN_A_BARRIER, Stream, draw_stream, labels, next_barrier
from hypothesis import strategies as st

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.factory import BarrierSettings, InFlightCapture, create_input_gate
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfPartition,
    SnapshotKind,
    StreamElement,
    Watermark,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

COUNTS, ABORTS = Semantics.current(), Semantics.flink_1_11()
SUBSUMED = CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED
#: A list of steps: the kind, the channel, and the number of elements. Kinds 0 to 2: a frame arrives (1: last
#: of all, 2: twice). Kinds 3 to 5: the task consumes. Kind 6: time passes.
Schedule = list[tuple[int, int, int]]


@dataclass(frozen=True)
class Plan:
    """The flowing elements, and the handling of barriers."""

    streams: list[Stream]
    schedule: Schedule
    semantics: Semantics = COUNTS
    savepoints: frozenset[int] = frozenset()
    aligned_channels: frozenset[int] = frozenset()
    timeout: float | None = None
    restored: int = 0


@st.composite
def plans(draw: st.DrawFn, *, clean: bool = False, kinds: bool = False, cancels: bool = True) -> Plan:
    """Random plans. `clean`: every id is a barrier everywhere, no ends; `kinds`: some are savepoints."""
    ids, count = draw(st.integers(0, 5)), draw(st.integers(1, 4))
    kept = OFTEN_A_BARRIER if cancels else tuple(kind for kind in OFTEN_A_BARRIER if kind != "cancel")
    chances = ("barrier",) if clean else kept
    streams = [draw_stream(draw, channel, ids, chances, may_end=not clean) for channel in range(count)]
    step = st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(1, 3))
    return Plan(
        streams,
        draw(st.lists(step, min_size=1, max_size=40)),
        draw(st.sampled_from([Semantics.current(), Semantics.flink_1_11()])),
        draw(st.frozensets(st.integers(0, 5))) if kinds else frozenset(),
        draw(st.frozensets(st.integers(0, count - 1))) if draw(st.booleans()) else frozenset(),
        draw(st.sampled_from([None, 1.0])),
        draw(st.integers(0, 2)),
    )


@dataclass
class Run:
    """One input with a task and a writer that record, and check the laws at every call."""

    plan: Plan
    persisted: dict[int, list[list[str]]] = field(default_factory=dict)
    at_trigger: dict[int, list[list[str]]] = field(default_factory=dict)
    unaligned: set[int] = field(default_factory=set)
    complete: list[int] = field(default_factory=list)
    aborted: dict[int, CheckpointFailureReason] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    writer_aborted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        plan, clock = self.plan, ManualClock()
        count = len(plan.streams)
        self.got: list[list[str]] = [[] for _ in range(count)]
        self.timers = ManualTimers(clock)
        self.gate = InputGate(InputChannel(index, clock) for index in range(count))
        barrier_settings = BarrierSettings(
            CheckpointingMode.EXACTLY_ONCE,
            unaligned=True,
            has_aligned_timeout=plan.timeout is not None,
            semantics=plan.semantics,
        )
        capture = InFlightCapture(Writer(self), self.timers, plan.aligned_channels)
        self.input: CheckpointedInputGate = create_input_gate(barrier_settings, self.gate, clock, capture)
        self.input.set_listener(self)
        # What was restored stands in front of everything, and has no numbers.
        self.whole = [[f"r{c}.{i}" for i in range(plan.restored)] + s for c, s in enumerate(plan.streams)]
        for channel, stream in enumerate(self.whole):
            self.input.restore(channel, [self.element(entry) for entry in stream[: plan.restored]])

    # -- the task -----------------------------------------------------------------------------------------

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        checkpoint_id = barrier.checkpoint_id
        assert not self.at_trigger or checkpoint_id > max(self.at_trigger), "F2"
        assert checkpoint_id not in self.aborted, "F3"
        self.at_trigger[checkpoint_id] = [list(got) for got in self.got]
        self.persisted.setdefault(checkpoint_id, [[] for _ in self.got])
        assert self.gate.blocked_channels == (), "A2"
        if not barrier.options.unaligned:
            assert checkpoint_id not in self.unaligned
            for channel in range(len(self.got)):
                assert self.got[channel] == labels(self.whole[channel], checkpoint_id), "A1"
        else:
            assert checkpoint_id in self.unaligned, "the writer is started first"
            assert checkpoint_id not in self.plan.savepoints
            for channel in self.plan.aligned_channels:
                assert self.got[channel] == labels(self.whole[channel], checkpoint_id), "A1"

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        assert checkpoint_id not in self.aborted, "F3"
        assert checkpoint_id not in self.complete, "a complete checkpoint stays complete"
        assert checkpoint_id not in self.at_trigger or checkpoint_id in self.unaligned, "F3"
        self.aborted[checkpoint_id] = reason

    # -- the writer ---------------------------------------------------------------------------------------

    def start(self, checkpoint_id: int) -> None:
        self.unaligned.add(checkpoint_id)

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        assert checkpoint_id in self.at_trigger, "U1"
        assert checkpoint_id not in self.aborted, "U1"
        assert checkpoint_id not in self.complete, "U1"
        assert checkpoint_id not in self.writer_aborted, "U1"
        own = self.persisted[checkpoint_id][channel]
        for element in elements:
            assert not isinstance(element, CheckpointBarrier | CancelCheckpointMarker | EndOfPartition)
            label = label_of(element)
            assert label not in own, "U1"
            assert label not in self.at_trigger[checkpoint_id][channel], "U1"
            assert label in labels(self.whole[channel], checkpoint_id), "U1"
            own.append(label)

    def finish_input(self, checkpoint_id: int) -> None:
        assert checkpoint_id in self.at_trigger
        assert checkpoint_id not in self.aborted
        assert checkpoint_id not in self.complete
        self.complete.append(checkpoint_id)
        for channel, stream in enumerate(self.whole):
            captured = self.at_trigger[checkpoint_id][channel] + self.persisted[checkpoint_id][channel]
            all_of_it = labels(stream, checkpoint_id)
            assert captured == all_of_it[: len(captured)], "U2"
            assert len(captured) >= len(labels(stream, next_barrier(stream, checkpoint_id))), "U2"

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        raise AssertionError("there are no outputs")

    def finish_output(self, checkpoint_id: int) -> None:
        raise AssertionError("there are no outputs")

    def writer_abort(self, checkpoint_id: int) -> None:
        self.writer_aborted.add(checkpoint_id)

    # -- the run ------------------------------------------------------------------------------------------

    def element(self, entry: str | int | None) -> StreamElement:
        if entry is None:
            return EndOfPartition()
        if isinstance(entry, str):
            # Some data is an event: it is captured and delivered all the same.
            return Buffer(entry.encode(), 1) if len(entry) % 2 else Watermark(int.from_bytes(entry.encode()))
        if entry < 0:
            return CancelCheckpointMarker(-entry - 1)
        if entry in self.plan.savepoints:
            return CheckpointBarrier(entry, 0.0, CheckpointOptions(SnapshotKind.SAVEPOINT))
        timeout = self.plan.timeout
        return CheckpointBarrier(
            entry, 0.0, CheckpointOptions(unaligned=timeout is None, aligned_timeout=timeout)
        )

    def send(self, channel: int, first: int, size: int) -> None:
        entries = self.plan.streams[channel][first : first + size]
        self.input.receive(channel, first, [encode_element(self.element(entry)) for entry in entries])

    def consume_one(self) -> bool:
        polled = self.input.poll_next()
        if polled is None:
            return False
        channel, element = polled
        if isinstance(element, EndOfPartition):
            self.ended.add(channel)
        else:
            self.got[channel].append(label_of(element))
            assert self.got[channel] == labels(self.whole[channel])[: len(self.got[channel])], "F1"
        return True

    def play(self) -> Run:
        streams = self.plan.streams
        sent = [0] * len(streams)
        kept: list[tuple[int, int, int]] = []  # frames that were overtaken
        turn = 0
        while any(sent[c] < len(stream) for c, stream in enumerate(streams)):
            what, where, size = self.plan.schedule[turn % len(self.plan.schedule)]
            turn += 1
            waiting = [c for c, stream in enumerate(streams) if sent[c] < len(stream)]
            if what == 6:
                self.timers.advance(0.6)
            elif what >= 3 and self.consume_one():
                continue
            channel = waiting[where % len(waiting)]
            frame = (channel, sent[channel], size)
            sent[channel] = min(len(streams[channel]), sent[channel] + size)
            if what == 1:
                kept.append(frame)
                continue
            self.send(*frame)
            if what == 2:
                self.send(*frame)
        for frame in kept:
            self.send(*frame)
        self.settle()
        return self

    def settle(self) -> None:
        while self.consume_one() or self.timers.fire_next():
            pass
        blocked = self.gate.blocked_channels
        for channel, stream in enumerate(self.whole):
            if channel not in blocked:
                assert self.got[channel] == labels(stream), "F1"
                assert (channel in self.ended) == (None in stream), "F1"
        self.check_outcomes()

    def check_outcomes(self) -> None:
        aligned = set(self.at_trigger) - self.unaligned
        assert not aligned.intersection(self.complete)
        running = set(self.input.handler.pending)
        for checkpoint_id in self.unaligned - set(self.complete) - set(self.aborted):
            # Given up for a newer cancelled one, which alone is reported, or still waiting for a barrier.
            assert checkpoint_id in self.writer_aborted | running
        for checkpoint_id in running:
            open_streams = [stream for stream in self.whole if None not in stream]
            assert any(checkpoint_id not in stream for stream in open_streams), "it waits for nobody"
        if not running:
            assert self.gate.blocked_channels == (), "A2"


def label_of(element: StreamElement) -> str:
    if isinstance(element, Buffer):
        return element.payload.decode()
    assert isinstance(element, Watermark)
    return element.timestamp.to_bytes((element.timestamp.bit_length() + 7) // 8).decode()


class Writer:
    """The writer's side of a run."""

    def __init__(self, run: Run) -> None:
        self.start, self.add_input, self.finish_input = run.start, run.add_input, run.finish_input
        self.add_output, self.finish_output, self.abort = run.add_output, run.finish_output, run.writer_abort
