"""The laws of barrier handling under random interleavings.

Elements arrive on any channel at any time, blocked ones included, and are consumed at any time. The laws:

* F1: per channel nothing is lost, repeated or reordered. F2: triggered ids grow strictly. F3: an id is
  aborted at most once, and never both triggered and aborted. F4: there is no error.
* A1 (aligner): at a trigger exactly the elements in front of the barriers have been delivered. A2: a channel
  is blocked only between its barrier and the end of the alignment. A3: a clean run triggers every id in
  order.
* T1 (tracker): at a trigger no element in front of the barriers is missing. T2: as A3.

Under `COUNTS_AS_BARRIER` an ended channel settles its barriers, so ends abort nothing and hold nothing back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from channel_streams import OFTEN_A_BARRIER, Stream, draw_stream, element_of, labels
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.factory import create_barrier_handler
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, EndOfPartition
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock

EXACTLY_ONCE, AT_LEAST_ONCE = CheckpointingMode.EXACTLY_ONCE, CheckpointingMode.AT_LEAST_ONCE
COUNTS, ABORTS = Semantics.current(), Semantics.flink_1_11()


@st.composite
def streams(draw: st.DrawFn, *, clean: bool = False, ends: bool = False) -> list[Stream]:
    """Streams of 1 to 4 channels. `clean`: every id is a barrier everywhere; `ends`: any may be cut short."""
    ids = draw(st.integers(0, 6))
    kinds = ("barrier",) if clean else OFTEN_A_BARRIER
    return [
        draw_stream(draw, channel, ids, kinds, may_end=ends) for channel in range(draw(st.integers(1, 4)))
    ]


#: What happens next: a channel (modulo what is possible), and whether it receives or the task consumes.
schedules = st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=1, max_size=40)


@dataclass
class Run:
    """One input with a task that records, and checks the laws at every call."""

    streams: list[Stream]
    mode: CheckpointingMode
    semantics: Semantics
    got: list[list[str]] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    triggered: list[int] = field(default_factory=list)
    aborted: list[tuple[int, CheckpointFailureReason]] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = ManualClock()
        count = len(self.streams)
        self.got = [[] for _ in range(count)]
        self.gate = InputGate(InputChannel(index, clock) for index in range(count))
        handler = create_barrier_handler(self.mode, count, self.gate, clock, self.semantics)
        self.input = CheckpointedInputGate(self.gate, handler)
        self.input.set_listener(self)

    # -- the task -----------------------------------------------------------------------------------------

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        checkpoint_id = barrier.checkpoint_id
        assert not self.triggered or checkpoint_id > self.triggered[-1], "F2"
        assert checkpoint_id not in {aborted for aborted, _ in self.aborted}, "F3"
        self.triggered.append(checkpoint_id)
        for channel, stream in enumerate(self.streams):
            cut, got = labels(stream, checkpoint_id), self.got[channel]
            if self.mode is EXACTLY_ONCE:
                assert got == cut, "A1"
                assert checkpoint_id in stream or self.has_consumed_all(channel), "A1"
            else:
                assert got[: len(cut)] == cut, "T1"
                assert self.has_consumed_barrier(channel, checkpoint_id) or self.has_consumed_all(channel), (
                    "T1"
                )
        assert self.gate.blocked_channels == (), "A2"

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        assert checkpoint_id not in {aborted for aborted, _ in self.aborted}, "F3"
        assert checkpoint_id not in self.triggered, "F3"
        self.aborted.append((checkpoint_id, reason))
        if reason is CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM:
            assert self.semantics == ABORTS
        assert self.gate.blocked_channels == (), "A2"

    # -- the run ------------------------------------------------------------------------------------------

    def consumed(self, channel: int) -> Stream:
        return self.streams[channel][: self.gate.consumed(channel)]

    def has_consumed_all(self, channel: int) -> bool:
        return None in self.consumed(channel)

    def has_consumed_barrier(self, channel: int, checkpoint_id: int) -> bool:
        return checkpoint_id in self.consumed(channel)

    def consume_one(self) -> bool:
        polled = self.input.poll_next()
        if polled is None:
            return False
        channel, element = polled
        if isinstance(element, Buffer):
            self.got[channel].append(element.payload.decode())
            assert self.got[channel] == labels(self.consumed(channel)), "F1"
        else:
            assert isinstance(element, EndOfPartition)
            self.ended.add(channel)
            assert self.semantics == COUNTS or not self.gate.blocked_channels, "A2"
        self.check_blocking()
        return True

    def check_blocking(self) -> None:
        for channel in self.gate.blocked_channels:
            assert self.mode is EXACTLY_ONCE
            last = self.consumed(channel)[-1]
            assert last == self.input.handler.latest_checkpoint_id, "A2"
            assert last not in self.triggered, "A2"

    def play(self, schedule: list[tuple[int, bool]]) -> Run:
        arrived = [0] * len(self.streams)
        turn = 0
        while open_channels := [c for c, stream in enumerate(self.streams) if arrived[c] < len(stream)]:
            choice, consumes = schedule[turn % len(schedule)]
            turn += 1
            if not consumes or not self.consume_one():
                channel = open_channels[choice % len(open_channels)]
                element = element_of(self.streams[channel][arrived[channel]])
                self.input.receive(channel, arrived[channel], [encode_element(element)])
                arrived[channel] += 1
        while self.consume_one():
            pass
        self.check_blocking()
        assert [labels(self.consumed(c)) for c in range(len(self.streams))] == self.got, "F1"
        blocked = self.gate.blocked_channels
        for channel, stream in enumerate(self.streams):
            assert channel in blocked or self.consumed(channel) == stream, "F1"
            assert (channel in self.ended) == self.has_consumed_all(channel), "F1"
        return self


modes = st.sampled_from(CheckpointingMode)
policies = st.sampled_from([Semantics.current(), Semantics.flink_1_11()])


@settings(max_examples=130 * DEEP)
@given(streams(ends=True), schedules, modes, policies)
def test_laws_hold_for_barriers_cancellations_gaps_and_ends(
    made: list[Stream],
    schedule: list[tuple[int, bool]],
    mode: CheckpointingMode,
    semantics: Semantics,
) -> None:
    Run(made, mode, semantics).play(schedule)


@given(streams(clean=True), schedules, modes, policies)
def test_clean_run_triggers_every_checkpoint_in_order(
    made: list[Stream],
    schedule: list[tuple[int, bool]],
    mode: CheckpointingMode,
    semantics: Semantics,
) -> None:
    run = Run(made, mode, semantics).play(schedule)
    assert run.triggered == [entry for entry in made[0] if isinstance(entry, int)], "A3, T2"
    assert run.aborted == []
    assert run.gate.blocked_channels == ()
    assert run.got == [labels(stream) for stream in made]


@given(streams(clean=True, ends=True), schedules)
def test_ends_that_count_as_barriers_hold_no_checkpoint_back(
    made: list[Stream], schedule: list[tuple[int, bool]]
) -> None:
    run = Run(made, EXACTLY_ONCE, COUNTS).play(schedule)
    assert run.triggered == sorted({entry for stream in made for entry in stream if isinstance(entry, int)})
    assert run.aborted == []
    assert run.gate.blocked_channels == ()
    assert run.got == [labels(stream) for stream in made]


@given(streams(clean=True, ends=True), schedules)
def test_tracker_triggers_what_every_open_channel_has_sent(
    made: list[Stream], schedule: list[tuple[int, bool]]
) -> None:
    run = Run(made, AT_LEAST_ONCE, COUNTS).play(schedule)
    assert run.triggered == sorted({entry for stream in made for entry in stream if isinstance(entry, int)})
    assert run.aborted == []
