"""Elements that barriers overtake in a subtask's outputs are captured once and completely, and in time."""

from __future__ import annotations

from typing import Any

import pytest
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.channel_state_writer import (
    AsyncChannelStateWriter,
    BarrierSender,
    ChannelStateAborted,
    read_channel_state,
)
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.execution_graph import OutputChannelSpec, ResultPartitionSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import (
    Buffer,
    CheckpointBarrier,
    CheckpointOptions,
    RowBatch,
    StreamElement,
    Watermark,
)
from penstock.runtime.snapshot.handles import ChannelStateHandle
from penstock.runtime.snapshot.ids import ChannelId, EdgeId, SubtaskId
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.task_time import TaskTimers
from penstock.runtime.testing.manual_time import ManualClock

CODEC = BatchCodec()
SPREAD = OutputChannelSpec(SubtaskId("spread", 0), 0)
FORWARD = OutputChannelSpec(SubtaskId("forward", 0), 0)
PATIENCE = 5.0


def plain(element: StreamElement) -> Any:
    return CODEC.decode(element).rows if isinstance(element, Buffer) else element  # type: ignore[union-attr]


NAMES = {
    spec: ChannelId(EdgeId("op", None, spec.receiver.vertex), 0, spec.receiver.index)
    for spec in (SPREAD, FORWARD)
}


class Sender:
    """The outputs of one operator: a spread edge and a forward edge, of one channel and one credit each."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = TaskTimers(self.clock)
        self.storage = MemoryStorage()
        self.runner = ManualAsyncRunner()
        self.sent: dict[OutputChannelSpec, list[Any]] = {SPREAD: [], FORWARD: []}
        self.frames: dict[OutputChannelSpec, list[int]] = {SPREAD: [], FORWARD: []}
        self.results: dict[int, Any] = {}
        edges = [(SPREAD, Partitioning.REBALANCE), (FORWARD, Partitioning.FORWARD)]
        specs = [
            ResultPartitionSpec("op", None, Partitioner(kind), 16, (spec,), NAMES[spec].edge)
            for spec, kind in edges
        ]
        config = JobConfig(advanced=AdvancedConfig(credits=1, buffer_rows=1, debloat_target=0))
        here = {"op": OperatorLocation("op", 0, 1, None)}
        self.outputs = SubtaskOutputs(specs, 0, CODEC, self._send, config, here)
        self.writer = AsyncChannelStateWriter(
            (), NAMES, lambda checkpoint_id: StateFiles(self.storage, lambda: f"{checkpoint_id}"), self.runner
        )
        self.barriers = BarrierSender(self.outputs, self.writer, self.timers)

    def _send(self, channel: OutputChannelSpec, first: int, elements: list[bytes]) -> None:
        self.frames[channel].append(first)
        self.sent[channel] += [plain(decode_element(element)) for element in elements]

    def emit(self, *rows: Any) -> None:
        for row in rows:
            self.outputs.emit("op", None, RowBatch([row]))

    def answer(self, channel: OutputChannelSpec) -> None:
        """The receiver has consumed what it was sent first."""
        self.outputs.frame_consumed(channel, self.frames[channel].pop(0), 0.0)
        self.barriers.barriers_may_have_left()

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.timers.fire(self.clock.monotonic())

    def ask(self, checkpoint_id: int) -> None:
        def told(outcome: object) -> None:
            assert checkpoint_id not in self.results, "told twice"
            self.results[checkpoint_id] = outcome

        self.writer.result(checkpoint_id, told, told)
        self.runner.run_all()

    def captured(self, checkpoint_id: int) -> dict[OutputChannelSpec, list[Any]]:
        handle = self.results[checkpoint_id]
        assert isinstance(handle, ChannelStateHandle)
        outputs = read_channel_state(self.storage, handle)[0].outputs
        specs = {channel: spec for spec, channel in NAMES.items()}
        return {specs[c]: [plain(decode_element(e)) for e in elements] for c, elements in outputs.items()}


@pytest.fixture
def sender() -> Sender:
    return Sender()


def unaligned(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0, CheckpointOptions(unaligned=True))


def patient(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0, CheckpointOptions(aligned_timeout=PATIENCE))


def turned(checkpoint_id: int) -> CheckpointBarrier:
    options = CheckpointOptions(unaligned=True, aligned_timeout=PATIENCE)
    return CheckpointBarrier(checkpoint_id, 0.0, options)


def test_unaligned_barrier_leaves_at_once_and_what_it_overtook_is_captured(sender: Sender) -> None:
    sender.emit("sent", "queued")
    assert sender.barriers.send(unaligned(1))
    assert sender.sent[SPREAD] == [["sent"], unaligned(1)]
    sender.writer.finish_input(1)
    sender.ask(1)
    assert sender.captured(1) == {SPREAD: [["queued"]]}
    assert not sender.barriers.is_waiting
    assert sender.timers.next_at is None


def test_what_was_captured_is_sent_all_the_same(sender: Sender) -> None:
    sender.emit("sent", "queued")
    sender.barriers.send(unaligned(1))
    sender.answer(SPREAD)
    assert sender.sent[SPREAD] == [["sent"], unaligned(1), ["queued"]]


def test_no_barrier_overtakes_on_an_edge_that_can_not_be_dealt_out_anew(sender: Sender) -> None:
    sender.emit("sent", "queued")
    sender.barriers.send(unaligned(1))
    assert sender.sent[FORWARD] == [["sent"]]
    sender.answer(FORWARD)
    assert sender.sent[FORWARD] == [["sent"], ["queued"], unaligned(1)]


def test_outputs_in_which_nothing_waits_add_nothing_to_an_unaligned_checkpoint(sender: Sender) -> None:
    sender.emit("sent")
    assert sender.barriers.send(unaligned(1)), "the input may add something"
    sender.writer.finish_input(1)
    sender.ask(1)
    assert sender.results == {1: None}
    assert sender.storage.list("") == []


def test_aligned_barrier_that_leaves_at_once_needs_neither_writer_nor_timer(sender: Sender) -> None:
    sender.emit("sent")
    assert not sender.barriers.send(patient(1))
    assert sender.sent[SPREAD] == [["sent"], patient(1)]
    assert sender.timers.next_at is None
    assert sender.writer.running == 0


def test_aligned_barrier_without_patience_waits_for_ever_and_is_not_waited_for(sender: Sender) -> None:
    sender.emit("sent", "queued")
    assert not sender.barriers.send(CheckpointBarrier(1, 0.0))
    assert sender.timers.next_at is None
    assert sender.writer.running == 0


def test_barrier_that_waits_only_where_it_may_not_overtake_is_not_waited_for(sender: Sender) -> None:
    sender.emit("sent", "queued")
    sender.answer(SPREAD)
    sender.answer(SPREAD)
    assert not sender.barriers.send(patient(1))
    assert sender.sent[FORWARD] == [["sent"]]
    assert sender.timers.next_at is None


def test_barrier_that_waits_keeps_its_checkpoint_open_until_it_has_left(sender: Sender) -> None:
    sender.emit("sent", "queued")
    assert sender.barriers.send(patient(1))
    sender.ask(1)
    sender.barriers.barriers_may_have_left()
    assert sender.barriers.is_waiting
    assert sender.results == {}, "it may still grow"
    sender.answer(SPREAD)
    sender.runner.run_all()
    assert sender.results == {1: None}, "it left in its turn, so it overtook nothing"
    assert not sender.barriers.is_waiting
    assert sender.timers.next_at is None


def test_barrier_that_lost_its_patience_overtakes_and_is_captured_with_what_was_in_front(
    sender: Sender,
) -> None:
    sender.emit("sent", "queued")
    sender.outputs.broadcast_event(Watermark(7))
    sender.barriers.send(patient(1))
    sender.emit("behind")
    sender.ask(1)
    sender.wait(PATIENCE - 0.01)
    assert sender.results == {}
    sender.wait(0.01)
    sender.runner.run_all()
    assert sender.captured(1) == {SPREAD: [["queued"], Watermark(7)]}
    assert sender.sent[SPREAD] == [["sent"], turned(1)]
    assert sender.sent[FORWARD] == [["sent"]]
    assert not sender.barriers.is_waiting


def test_each_barrier_has_its_own_patience(sender: Sender) -> None:
    sender.emit("sent", "queued")
    sender.barriers.send(patient(1))
    sender.wait(PATIENCE / 2)
    sender.barriers.send(patient(2))
    sender.ask(1)
    sender.ask(2)
    sender.wait(PATIENCE / 2)
    sender.runner.run_all()
    assert list(sender.results) == [1]
    sender.wait(PATIENCE / 2)
    sender.runner.run_all()
    assert sender.captured(1) == sender.captured(2) == {SPREAD: [["queued"]]}


@pytest.mark.parametrize("is_later", [False, True])
def test_checkpoint_that_was_given_up_loses_its_timer_and_its_barrier_goes_in_its_turn(
    sender: Sender, is_later: bool
) -> None:
    sender.emit("sent", "queued")
    sender.barriers.send(patient(1))
    sender.ask(1)
    sender.barriers.abort(1)
    assert isinstance(sender.results[1], ChannelStateAborted)
    assert not sender.barriers.is_waiting
    assert sender.timers.next_at is None
    if is_later:
        sender.wait(PATIENCE)
    sender.answer(SPREAD)
    assert sender.sent[SPREAD] == [["sent"], ["queued"], patient(1)]
    assert sender.storage.list("") == []


def test_abort_of_one_checkpoint_leaves_the_patience_of_the_other_alone(sender: Sender) -> None:
    sender.emit("sent", "queued")
    sender.barriers.send(patient(1))
    sender.barriers.send(patient(2))
    sender.barriers.abort(1)
    assert sender.barriers.is_waiting
    sender.ask(2)
    sender.wait(PATIENCE)
    sender.runner.run_all()
    assert sender.captured(2) == {SPREAD: [["queued"]]}


def test_end_of_the_task_leaves_no_timer(sender: Sender) -> None:
    sender.emit("sent", "queued")
    sender.barriers.send(patient(1))
    sender.barriers.close()
    assert not sender.barriers.is_waiting
    assert sender.timers.next_at is None
