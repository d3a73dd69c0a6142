"""The input of a subtask: what the task sees, in which order, and what barriers do to channels."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.factory import create_barrier_handler
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.network.input_channel import InputChannel, MissingElementsError
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    SnapshotKind,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, StoredBytes
from penstock.runtime.testing.manual_time import ManualClock


@dataclass
class RecordingTask:
    """Writes down calls and what it takes from its input, in one order."""

    log: list[object] = field(default_factory=list)

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        self.log.append(barrier)

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        self.log.append((checkpoint_id, reason))


class Input:
    """A gate of two channels and its task."""

    def __init__(
        self,
        mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        clock = ManualClock()
        gate = InputGate((InputChannel(index, clock) for index in range(2)), gap_timeout=1.0)
        self.gate = CheckpointedInputGate(gate, create_barrier_handler(mode, 2, gate, clock, semantics))
        self.task = RecordingTask()
        self.gate.set_listener(self.task)
        self.sent = [0, 0]

    def send(self, channel: int, *elements: StreamElement) -> None:
        self.gate.receive(channel, self.sent[channel], [encode_element(element) for element in elements])
        self.sent[channel] += len(elements)

    def run(self) -> list[object]:
        while (polled := self.gate.poll_next()) is not None:
            self.task.log.append(polled)
        log, self.task.log = self.task.log, []
        return log


A, B = Buffer(b"a", 1), Buffer(b"b", 1)


def test_everything_but_barriers_and_markers_reaches_the_task() -> None:
    fed = Input()
    elements: list[StreamElement] = [A, Watermark(1), StreamStatus.IDLE, EndOfData(), EndOfPartition()]
    fed.send(0, *elements[:3], CancelCheckpointMarker(1), *elements[3:])
    assert [entry for entry in fed.run() if entry[0] == 0] == [(0, element) for element in elements]  # type: ignore[index]


def test_nothing_behind_a_barrier_is_taken_before_the_trigger() -> None:
    fed = Input()
    barrier = CheckpointBarrier(1, 0.0)
    fed.send(0, barrier, A)
    fed.send(1, B)
    assert fed.run() == [(1, B)]
    assert fed.gate.gate.blocked_channels == (0,)
    fed.send(1, barrier, B)
    log = fed.run()
    assert log[0] == barrier
    assert log[1:] in ([(0, A), (1, B)], [(1, B), (0, A)])


def test_consumed_barrier_gives_its_credit_back_while_its_channel_is_blocked() -> None:
    fed = Input()
    fed.send(0, A, CheckpointBarrier(1, 0.0))
    fed.send(0, A)
    fed.run()
    assert fed.gate.take_progressed_channels() == [0]
    assert fed.gate.consumed(0) == 2


def test_at_least_once_takes_elements_behind_an_early_barrier() -> None:
    fed = Input(CheckpointingMode.AT_LEAST_ONCE)
    barrier = CheckpointBarrier(1, 0.0)
    fed.send(0, barrier, A)
    assert fed.run() == [(0, A)]
    fed.send(1, barrier)
    assert fed.run() == [barrier]


def test_checkpoint_that_an_end_completes_comes_before_the_end() -> None:
    fed = Input()
    barrier = CheckpointBarrier(1, 0.0)
    fed.send(0, barrier)
    fed.send(1, EndOfPartition())
    assert fed.run() == [barrier, (1, EndOfPartition())]


def test_end_can_abort_the_running_checkpoint_and_releases_its_channels() -> None:
    fed = Input(semantics=Semantics.flink_1_11())
    fed.send(0, CheckpointBarrier(1, 0.0), A)
    fed.send(1, EndOfPartition())
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
    assert fed.run() == [(1, reason), (1, EndOfPartition()), (0, A)]


@pytest.mark.parametrize("mode", CheckpointingMode)
def test_barrier_reaches_the_task_as_it_was_sent(mode: CheckpointingMode) -> None:
    fed = Input(mode)
    options = CheckpointOptions(SnapshotKind.SYNC_SAVEPOINT, aligned_timeout=2.5)
    barrier = CheckpointBarrier(9, 12.25, options, confirmed_id=6)
    fed.send(0, barrier)
    fed.send(1, barrier)
    assert fed.run() == [barrier]


def test_several_barriers_in_one_poll_are_all_dealt_with() -> None:
    fed = Input()
    first, second = CheckpointBarrier(1, 0.0), CheckpointBarrier(2, 0.0)
    fed.send(0, first, second, A)
    fed.send(1, first, second)
    assert fed.run() == [first, second, (0, A)]


def test_missing_element_fails_through_the_gate_after_its_deadline() -> None:
    fed = Input()
    fed.gate.receive(0, 1, [encode_element(A)])
    assert fed.gate.check_gaps(0.5) == 1.0
    with pytest.raises(MissingElementsError, match="element 0 has not arrived"):
        fed.gate.check_gaps(1.5)


def test_statistics_count_channels_and_barriers() -> None:
    fed = Input()
    fed.send(0, CheckpointBarrier(4, 0.0), A)
    fed.run()
    gate, barriers = fed.gate.gate, fed.gate.handler.statistics()
    assert gate.blocked_channels == (0,)
    assert gate.channels[0].queued == 1
    assert barriers.pending == 1
    assert barriers.latest_checkpoint_id == 4


def test_input_is_finished_with_the_last_end() -> None:
    fed = Input()
    fed.send(0, EndOfPartition())
    fed.run()
    assert not fed.gate.is_finished
    fed.send(1, EndOfPartition())
    fed.run()
    assert fed.gate.is_finished


def test_gate_without_a_store_has_given_everything_that_it_can_when_it_returns() -> None:
    fed = Input()
    fed.send(0, A)
    assert not fed.gate.has_more
    fed.run()
    assert not fed.gate.has_more


def test_gate_that_holds_blocked_channels_stores_nothing() -> None:
    fed = Input()
    fed.send(0, CheckpointBarrier(1, 0.0), A)
    assert fed.run() == []
    assert fed.gate.stored == StoredBytes(0, 0)
    assert fed.gate.storage_statistics() is None
