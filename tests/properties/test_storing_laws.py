"""The laws of the storing gate, and that all ways of aligning agree. PENSTOCK_DEEP=N: N times the examples.

* F1 to F4 and A1 as in `test_barrier_laws`; when all channels have ended, all that was fed is delivered.
* A3 a clean run with unlimited storage triggers every id in order, without aborts.
* On a disk without room nothing is lost, and only the checkpoints that met it are given up.
* With a limit, nothing more than one element above it is ever stored.
* Differential: in a clean run, aligner and storing gate trigger the same checkpoints, with the same data
  delivered before each, in any interleaving. With one channel the tracker does, too.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

from channel_streams import OFTEN_A_BARRIER, Stream, draw_stream, element_of, labels
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate, StoringInputGate
from penstock.runtime.barrier.factory import BarrierSettings, create_input_gate
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StorageError
from penstock.runtime.io.scratch import open_spill_file
from penstock.runtime.network.buffer_storage import (
    BufferStorage,
    StoredElement,
)
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.ports import SpillFile
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, EndOfPartition
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.disks import SpillDisk

EXACTLY_ONCE, AT_LEAST_ONCE = CheckpointingMode.EXACTLY_ONCE, CheckpointingMode.AT_LEAST_ONCE
COUNTS = Semantics.current()
NOT_STORED = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED
LIMIT_EXCEEDED = CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED


@st.composite
def streams(draw: st.DrawFn, *, clean: bool = False, channels: int = 4) -> list[Stream]:
    """Streams of 1 to 4 channels. `clean`: every id is a barrier everywhere, and no channel ends."""
    ids = draw(st.integers(0, 5))
    kinds = ("barrier",) if clean else OFTEN_A_BARRIER
    return [
        draw_stream(draw, channel, ids, kinds, may_end=not clean)
        for channel in range(draw(st.integers(1, channels)))
    ]


schedules = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=40)
policies = st.sampled_from([Semantics.current(), Semantics.flink_1_11()])


@dataclass
class Run:
    """One input with a task that records and checks."""

    streams: list[Stream]
    settings: BarrierSettings
    storage: BufferStorage | None = None
    at_trigger: dict[int, list[list[str]]] = field(default_factory=dict)
    aborted: dict[int, CheckpointFailureReason] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clock = ManualClock()
        self.got: list[list[str]] = [[] for _ in self.streams]
        self.ended: set[int] = set()
        gate, storage = InputGate(InputChannel(i, clock) for i in range(len(self.streams))), self.storage
        self.input: CheckpointedInputGate = create_input_gate(
            self.settings, gate, clock, storage=None if storage is None else lambda: storage
        )
        self.input.set_listener(self)

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        checkpoint_id = barrier.checkpoint_id
        assert not self.at_trigger or checkpoint_id > max(self.at_trigger), "F2"
        assert checkpoint_id not in self.aborted, "F3"
        self.at_trigger[checkpoint_id] = [list(got) for got in self.got]
        if self.settings.mode is EXACTLY_ONCE:
            for channel, stream in enumerate(self.streams):
                assert self.got[channel] == labels(stream, checkpoint_id), "A1"
                assert checkpoint_id in stream or None in stream, "A1"

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        assert checkpoint_id not in self.aborted, "F3"
        assert checkpoint_id not in self.at_trigger, "F3"
        self.aborted[checkpoint_id] = reason

    def consume_one(self) -> bool:
        polled = self.input.poll_next()
        if polled is None:
            return self.input.has_more
        channel, element = polled
        if isinstance(element, EndOfPartition):
            self.ended.add(channel)
        else:
            assert isinstance(element, Buffer)
            self.got[channel].append(element.payload.decode())
            assert self.got[channel] == labels(self.streams[channel])[: len(self.got[channel])], "F1"
        return True

    def play(self, schedule: list[tuple[int, bool]]) -> Run:
        sent = [0] * len(self.streams)
        turn = 0
        while waiting := [c for c, stream in enumerate(self.streams) if sent[c] < len(stream)]:
            choice, consumes = schedule[turn % len(schedule)]
            turn += 1
            if not consumes or not self.consume_one():
                channel = waiting[choice % len(waiting)]
                data = encode_element(element_of(self.streams[channel][sent[channel]]))
                self.input.receive(channel, sent[channel], [data])
                sent[channel] += 1
        while self.consume_one():
            pass
        return self

    def end(self) -> None:
        assert isinstance(self.input, StoringInputGate)
        for channel, stream in enumerate(self.streams):
            if None not in stream:
                self.input.receive(channel, len(stream), [encode_element(EndOfPartition())])
                stream.append(None)
        while self.consume_one():
            pass
        assert self.input.blocked_channels == ()
        assert self.input.stored.stored == 0
        assert self.got == [labels(stream) for stream in self.streams], "F1"
        assert self.ended == set(range(len(self.streams))), "F1"
        self.input.close()


def in_memory() -> BufferStorage:
    return BufferStorage(SpillDisk(lambda: False), memory_bytes=1 << 30)


class PagedStorage(BufferStorage):
    """Every element counts for ten bytes."""

    def add(self, stored: StoredElement) -> None:
        super().add(replace(stored, size=10))


def storing(semantics: Semantics = COUNTS) -> BarrierSettings:
    return BarrierSettings(EXACTLY_ONCE, stores=True, semantics=semantics)


@settings(max_examples=130 * DEEP)
@given(streams(), schedules, policies, st.sampled_from([None, 0, 10, 30]))
def test_laws_hold_with_and_without_a_limit(
    made: list[Stream],
    schedule: list[tuple[int, bool]],
    semantics: Semantics,
    limit: int | None,
) -> None:
    storage = PagedStorage(SpillDisk(lambda: False), 1 << 30, limit)
    run = Run(made, storing(semantics), storage if len(made) > 1 else None).play(schedule)
    if limit is None:
        assert LIMIT_EXCEEDED not in run.aborted.values()
    if len(made) > 1:
        run.end()


@settings(max_examples=100 * DEEP)
@given(streams(clean=True), schedules, st.booleans())
def test_clean_run_triggers_every_checkpoint_whatever_stores(
    made: list[Stream], schedule: list[tuple[int, bool]], spills: bool
) -> None:
    ids = [entry for entry in made[0] if isinstance(entry, int)]
    with tempfile.TemporaryDirectory() as folder:
        storage = BufferStorage(lambda: open_spill_file(Path(folder)), 600 if spills else 1 << 30)
        run = Run(made, storing(), storage).play(schedule)
        assert list(run.at_trigger) == ids, "A3"
        assert run.aborted == {}, "A3"
        assert run.got == [labels(stream) for stream in made]
        storage.close()


class MoodyDisk:
    """A disk that has room for an element or not, as it was drawn."""

    def __init__(self, moods: list[bool]) -> None:
        self._disk = SpillDisk(lambda: next(self._moods))
        self._moods = cycle(moods)

    def __call__(self) -> SpillFile:
        if not next(self._moods):
            raise StorageError("no room for a file")
        return self._disk()


@settings(max_examples=130 * DEEP)
@given(streams(), schedules, policies, st.lists(st.booleans(), min_size=1, max_size=9), st.integers(0, 900))
def test_laws_hold_on_a_disk_that_has_room_now_and_then(
    made: list[Stream],
    schedule: list[tuple[int, bool]],
    semantics: Semantics,
    moods: list[bool],
    memory: int,
) -> None:
    storage = BufferStorage(MoodyDisk(moods), memory)
    run = Run(made, storing(semantics), storage if len(made) > 1 else None).play(schedule)
    if all(moods):
        assert NOT_STORED not in run.aborted.values()
    if len(made) > 1:
        run.end()


@settings(max_examples=100 * DEEP)
@given(streams(clean=True), schedules, schedules)
def test_aligner_and_storing_gate_cut_alike(
    made: list[Stream], schedule: list[tuple[int, bool]], other: list[tuple[int, bool]]
) -> None:
    aligned = Run(made, BarrierSettings(EXACTLY_ONCE)).play(schedule)
    stored = Run(made, storing(), in_memory()).play(other)
    assert aligned.at_trigger == stored.at_trigger


@settings(max_examples=40 * DEEP)
@given(streams(clean=True, channels=1), schedules, schedules)
def test_aligner_and_tracker_cut_alike_on_one_channel(
    made: list[Stream], schedule: list[tuple[int, bool]], other: list[tuple[int, bool]]
) -> None:
    aligned = Run(made, BarrierSettings(EXACTLY_ONCE)).play(schedule)
    tracked = Run(made, BarrierSettings(AT_LEAST_ONCE)).play(other)
    assert aligned.at_trigger == tracked.at_trigger


@settings(max_examples=40 * DEEP)
@given(streams(clean=True), schedules, st.integers(0, 4))
def test_no_more_than_one_element_above_the_limit_is_kept_for_an_alignment(
    made: list[Stream], schedule: list[tuple[int, bool]], pages: int
) -> None:
    storage = PagedStorage(SpillDisk(lambda: False), 1 << 30, pages * 10)
    Run(made, storing(), storage).play(schedule)
    assert storage.statistics().largest_alignment <= (pages + 1) * 10
