"""Savepoints and checkpoints in one job: which side acts, and what the other one must not forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.alternating import AlternatingBarrierHandler
from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.unaligner import CheckpointBarrierUnaligner
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    SnapshotKind,
    StreamElement,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.manual_time import ManualClock

COUNTS = Semantics.current()
A = Buffer(b"a", 1)


def checkpoint(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1000.0, CheckpointOptions(unaligned=True))


def savepoint(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 1000.0, CheckpointOptions(SnapshotKind.SAVEPOINT))


class Writer:
    """Writes down what is captured."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def start(self, checkpoint_id: int) -> None:
        """Not looked at here."""

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        self.log.append(("persist", checkpoint_id, channel, *elements))

    def finish_input(self, checkpoint_id: int) -> None:
        self.log.append(("finish", checkpoint_id))

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        raise AssertionError("an input has no outputs")

    def finish_output(self, checkpoint_id: int) -> None:
        raise AssertionError("an input has no outputs")

    def abort(self, checkpoint_id: int) -> None:
        raise AssertionError("nothing is aborted silently here")


class Two:
    """Two channels, a task and a writer that write into one log."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.is_ready = True
        self.clock = clock = ManualClock(start=1000.0)
        self.savepoints = CheckpointBarrierAligner(2, self, clock)
        self.checkpoints = CheckpointBarrierUnaligner(2, self, Writer(self.log), clock, COUNTS)
        self.handler = AlternatingBarrierHandler(2, clock, self.savepoints, self.checkpoints)
        self.handler.set_listener(self, lambda: self.is_ready)

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        self.log.append(("trigger", barrier.checkpoint_id))

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        self.log.append(("abort", checkpoint_id))

    def block(self, channel: int) -> None:
        """Not looked at here."""

    def unblock(self, channel: int) -> None:
        """Not looked at here."""

    def waiting(self, channel: int) -> Sequence[StreamElement]:
        return ()

    def arrive(self, channel: int, *elements: StreamElement) -> None:
        self.handler.elements_arrived(channel, elements)

    def consume(self, channel: int, barrier: CheckpointBarrier) -> None:
        self.handler.process_barrier(channel, barrier)

    def cancel(self, checkpoint_id: int) -> None:
        self.handler.process_cancellation(0, CancelCheckpointMarker(checkpoint_id))


@pytest.fixture
def two() -> Two:
    return Two()


def test_checkpoint_begins_when_its_barrier_arrives_and_a_savepoint_when_all_were_consumed(two: Two) -> None:
    two.arrive(0, savepoint(1))
    two.arrive(1, savepoint(1))
    assert two.log == []
    two.consume(0, savepoint(1))
    two.consume(1, savepoint(1))
    assert two.log == [("trigger", 1)]
    two.arrive(0, checkpoint(2))
    assert two.log == [("trigger", 1), ("trigger", 2)]


def test_an_aligned_checkpoint_of_an_unaligned_job_captures_nothing(two: Two) -> None:
    """As before a rescale: what is in flight may not fit the new exchanges."""
    aligned = CheckpointBarrier(1, 1000.0, CheckpointOptions())
    two.arrive(0, A, aligned)
    two.handler.barrier_announced(1, aligned)
    two.consume(0, aligned)
    assert two.log == []
    two.arrive(1, A, aligned)
    two.consume(1, aligned)
    assert two.log == [("trigger", 1)]


def test_an_unaligned_checkpoint_subsumes_an_aligned_one(two: Two) -> None:
    two.consume(0, CheckpointBarrier(1, 1000.0, CheckpointOptions()))
    two.arrive(0, checkpoint(2))
    assert two.log == [("abort", 1), ("trigger", 2)]


def test_barrier_of_a_savepoint_that_is_announced_begins_nothing(two: Two) -> None:
    two.handler.barrier_announced(0, savepoint(1))
    assert (two.log, two.handler.pending) == ([], ())
    assert two.handler.statistics().ignored == 0
    two.handler.barrier_announced(0, checkpoint(2))
    assert (two.log, two.handler.pending) == ([("trigger", 2)], (2,))


def test_handler_watches_arrivals(two: Two) -> None:
    assert two.handler.watches_arrivals is True
    assert two.checkpoints.watches_arrivals is True


def test_checkpoint_that_waits_for_the_task_is_taken_when_the_task_says_so(two: Two) -> None:
    two.is_ready = False
    two.arrive(0, checkpoint(1))
    assert two.log == []
    two.is_ready = True
    two.handler.trigger_if_due()
    assert two.log == [("trigger", 1)]


def test_data_behind_a_barrier_in_one_frame_is_not_captured(two: Two) -> None:
    two.arrive(0, A, checkpoint(1), A)
    two.arrive(1, A)
    assert two.log == [("trigger", 1), ("persist", 1, 1, A)]


def test_ids_begin_at_0_on_both_sides(two: Two) -> None:
    two.arrive(0, checkpoint(0))
    assert two.log == [("trigger", 0)]
    other = Two()
    other.consume(0, savepoint(0))
    other.consume(1, savepoint(0))
    assert other.log == [("trigger", 0)]


@pytest.mark.parametrize("late", [1, 2])
def test_id_up_to_the_newest_cancelled_one_is_not_triggered_by_the_other_side(two: Two, late: int) -> None:
    two.cancel(2)
    two.arrive(0, checkpoint(late))
    two.arrive(1, checkpoint(late))
    assert two.log == [("abort", 2)]
    assert two.handler.statistics().ignored == 2
    two.arrive(0, checkpoint(3))
    assert two.log == [("abort", 2), ("trigger", 3)]


def test_older_cancellation_does_not_make_a_newer_one_forgotten(two: Two) -> None:
    two.cancel(5)
    two.cancel(3)
    two.arrive(0, checkpoint(4))
    assert two.log == [("abort", 5)]


def test_pending_checkpoint_may_complete_after_its_cancellation_was_seen_by_the_other_channel(
    two: Two,
) -> None:
    two.arrive(0, checkpoint(1))
    two.arrive(1, checkpoint(1))
    two.cancel(1)
    assert two.log == [("trigger", 1), ("finish", 1)]


def test_old_barrier_is_ignored_once(two: Two) -> None:
    two.arrive(0, checkpoint(2))
    two.consume(0, savepoint(1))
    assert two.log == [("trigger", 2)]
    assert two.handler.statistics().ignored == 1


def test_barrier_on_a_channel_that_has_ended_is_corrupt_also_when_it_is_old(two: Two) -> None:
    two.arrive(0, checkpoint(2))
    two.handler.process_end_of_partition(1)
    with pytest.raises(StreamCorruptError, match="has ended"):
        two.consume(1, savepoint(1))


def test_each_side_refuses_a_barrier_on_a_channel_that_has_ended(two: Two) -> None:
    two.handler.process_end_of_partition(1)
    for side, barrier in ((two.savepoints, savepoint(1)), (two.checkpoints, checkpoint(1))):
        with pytest.raises(StreamCorruptError, match="has ended"):
            side.process_barrier(1, barrier)


def test_channel_does_not_end_twice(two: Two) -> None:
    two.handler.process_end_of_partition(1)
    with pytest.raises(StreamCorruptError, match="has ended"):
        two.handler.process_end_of_partition(1)


def test_end_of_a_channel_counts_on_both_sides(two: Two) -> None:
    two.handler.process_end_of_partition(1)
    two.consume(0, savepoint(1))
    two.handler.elements_arrived(0, (checkpoint(2),))
    assert two.log[:2] == [("trigger", 1), ("trigger", 2)]


def test_statistics_are_those_of_both_sides_together(two: Two) -> None:
    two.clock.advance(2)
    two.consume(0, savepoint(1))
    two.clock.advance(3)
    two.consume(1, savepoint(1))
    assert two.handler.alignment_duration == 3.0
    two.consume(0, savepoint(2))
    assert two.handler.statistics().blocked == two.handler.blocked == 1
    two.arrive(0, checkpoint(3))
    assert two.handler.statistics().blocked == 0
    two.arrive(1, checkpoint(4))
    two.cancel(4)
    two.cancel(4)
    two.consume(0, savepoint(1))
    statistics = two.handler.statistics()
    assert statistics.triggered == 3, "1 on one side, 3 and 4 on the other"
    assert statistics.aborted == 3, "2 on one side, 3 and 4 on the other"
    assert statistics.ignored == 2, "the second cancellation, and the old savepoint"
    assert (statistics.latest_checkpoint_id, statistics.pending) == (4, 0)
    two.consume(0, savepoint(5))
    two.cancel(5)
    assert two.handler.statistics().cancelled_alignments == 1


def test_late_barriers_are_counted_by_the_side_that_ignores_them(two: Two) -> None:
    two.consume(0, savepoint(1))
    two.consume(1, savepoint(1))
    two.consume(0, savepoint(1))
    two.consume(1, savepoint(1))
    assert two.handler.statistics().ignored == 2
    two.arrive(0, checkpoint(2))
    two.arrive(1, checkpoint(2))
    two.handler.barrier_announced(0, checkpoint(2))
    assert two.handler.statistics().ignored == 3


def test_gate_passes_on_that_the_task_can_take_a_checkpoint(two: Two) -> None:
    gate = CheckpointedInputGate(InputGate(InputChannel(i, two.clock) for i in range(2)), two.handler)
    two.is_ready = False
    two.arrive(0, checkpoint(1))
    two.is_ready = True
    gate.trigger_if_due()
    assert two.log == [("trigger", 1)]


def test_barrier_whose_arrival_was_not_announced_begins_its_checkpoint_when_it_is_consumed(two: Two) -> None:
    two.checkpoints.process_barrier(0, checkpoint(1))
    assert (two.log, two.checkpoints.pending) == ([("trigger", 1)], (1,))
    two.checkpoints.process_barrier(1, checkpoint(1))
    assert two.log == [("trigger", 1), ("finish", 1)]
