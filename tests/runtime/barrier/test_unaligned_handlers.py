"""Unaligned, aligned with a timeout, mixed inputs: when a checkpoint begins and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.runtime.barrier.factory import (
    BarrierSettings,
    InFlightCapture,
    create_input_gate,
)
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StreamCorruptError
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
A, B, C = Buffer(b"a", 1), Buffer(b"b", 1), Buffer(b"c", 1)


class Input:
    """A gate of several channels; task and writer write into one log."""

    def __init__(
        self,
        channels: int = 2,
        *,
        timeout: bool = False,
        aligned: frozenset[int] = frozenset(),
        semantics: Semantics = COUNTS,
    ) -> None:
        clock = ManualClock()
        self.timers = ManualTimers(clock)
        self.channels = InputGate(InputChannel(index, clock) for index in range(channels))
        settings = BarrierSettings(unaligned=True, has_aligned_timeout=timeout, semantics=semantics)
        self.gate = create_input_gate(
            settings, self.channels, clock, InFlightCapture(Writer(self), self.timers, aligned)
        )
        self.gate.set_listener(self)
        self.sent = [0] * channels
        self.log: list[Any] = []
        self.alignments: list[float] = []

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        self.alignments.append(alignment_duration)
        self.log.append(("trigger", barrier.checkpoint_id, barrier.options.unaligned))

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = "") -> None:
        self.log.append(("abort", checkpoint_id))

    def send(self, channel: int, *elements: StreamElement, at: int | None = None) -> list[Any]:
        first = self.sent[channel] if at is None else at
        self.gate.receive(channel, first, [encode_element(element) for element in elements])
        self.sent[channel] = max(self.sent[channel], first + len(elements))
        return self.take()

    def run(self) -> list[Any]:
        while (polled := self.gate.poll_next()) is not None:
            self.log.append(polled)
        return self.take()

    def take(self) -> list[Any]:
        log, self.log = self.log, []
        return log


class Writer:
    def __init__(self, log: Input) -> None:
        self.to = log

    def start(self, checkpoint_id: int) -> None:
        self.to.log.append(("start", checkpoint_id))

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        self.to.log.append(("add", checkpoint_id, channel, list(elements)))

    def finish_input(self, checkpoint_id: int) -> None:
        self.to.log.append(("finish", checkpoint_id))

    def add_output(self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]) -> None:
        raise AssertionError("there are no outputs")

    def finish_output(self, checkpoint_id: int) -> None:
        raise AssertionError("there are no outputs")

    def abort(self, checkpoint_id: int) -> None:
        self.to.log.append(("forget", checkpoint_id))


def barrier(checkpoint_id: int, *, timeout: float | None = None) -> CheckpointBarrier:
    return CheckpointBarrier(
        checkpoint_id, 0.0, CheckpointOptions(unaligned=timeout is None, aligned_timeout=timeout)
    )


def savepoint(checkpoint_id: int) -> CheckpointBarrier:
    return CheckpointBarrier(checkpoint_id, 0.0, CheckpointOptions(SnapshotKind.SAVEPOINT))


def test_barrier_that_arrives_ahead_of_data_triggers_and_the_data_is_captured_when_it_comes() -> None:
    fed = Input()
    assert fed.send(0, barrier(1), at=2) == [("start", 1), ("trigger", 1, True)]
    assert fed.send(0, A, Watermark(5), at=0) == [("add", 1, 0, [A]), ("add", 1, 0, [Watermark(5)])]
    assert fed.send(0, B) == []
    assert fed.send(1, C, barrier(1)) == [("add", 1, 1, [C]), ("finish", 1)]
    assert [element for _, element in fed.run()] == [A, C, Watermark(5), B]


def test_a_barrier_that_comes_again_changes_nothing() -> None:
    fed = Input()
    fed.send(0, barrier(1))
    assert fed.send(0, barrier(1), at=0) == []
    assert fed.send(1, barrier(1)) == [("finish", 1)]


def test_end_of_a_channel_completes_a_checkpoint_when_it_arrives() -> None:
    fed = Input()
    fed.send(0, barrier(1))
    assert fed.send(1, A, EndOfPartition()) == [("add", 1, 1, [A]), ("finish", 1)]
    assert fed.send(0, barrier(2)) == [
        ("start", 2),
        ("trigger", 2, True),
        ("add", 2, 1, [A]),
        ("finish", 2),
    ]


def test_end_of_a_channel_aborts_a_checkpoint_when_it_is_consumed_as_in_flink_1_11() -> None:
    fed = Input(semantics=ABORTS)
    fed.send(0, barrier(1))
    assert fed.send(1, EndOfPartition()) == []
    assert fed.run() == [("abort", 1), (1, EndOfPartition())]


def test_with_time_enough_a_checkpoint_stays_aligned_and_captures_nothing() -> None:
    fed = Input(timeout=True)
    fed.send(0, A, barrier(1, timeout=5), B)
    assert fed.run() == [(0, A)]
    assert fed.channels.blocked_channels == (0,)
    fed.send(1, C, barrier(1, timeout=5))
    fed.timers.advance(4.9)
    assert fed.run() == [(1, C), ("trigger", 1, False), (0, B)]
    fed.timers.advance(10)
    assert fed.take() == []


def test_an_alignment_that_takes_too_long_turns_unaligned() -> None:
    fed = Input(timeout=True)
    fed.send(0, A, barrier(1, timeout=5), B)
    fed.run()
    fed.send(1, C)
    fed.timers.advance(5)
    assert fed.take() == [("start", 1), ("trigger", 1, True), ("add", 1, 1, [C])]
    assert fed.channels.blocked_channels == ()
    assert fed.send(1, A, barrier(1, timeout=5)) == [("add", 1, 1, [A]), ("finish", 1)]


def test_the_time_counts_from_the_arrival_of_a_barrier_that_waits_behind_data() -> None:
    fed = Input(timeout=True)
    fed.send(0, A, barrier(1, timeout=5))
    fed.timers.advance(5)
    assert fed.take() == [("start", 1), ("trigger", 1, True), ("add", 1, 0, [A])]


def test_an_unaligned_barrier_turns_an_alignment_at_once() -> None:
    fed = Input(timeout=True)
    fed.send(0, barrier(1, timeout=5))
    fed.run()
    assert fed.send(1, A, barrier(1)) == [
        ("start", 1),
        ("trigger", 1, True),
        ("add", 1, 1, [A]),
        ("finish", 1),
    ]


def test_a_subsumed_alignment_does_not_turn_later() -> None:
    fed = Input(timeout=True)
    fed.send(0, barrier(1, timeout=5))
    fed.timers.advance(3)
    assert fed.send(1, barrier(2, timeout=5)) == [("abort", 1)]
    fed.timers.advance(3)
    assert fed.take() == []
    fed.timers.advance(2)
    assert fed.take() == [("start", 2), ("trigger", 2, True)]


def test_mixed_inputs_trigger_when_the_aligned_ones_are_and_capture_the_others() -> None:
    fed = Input(3, aligned=frozenset({0}))
    assert fed.send(1, A, barrier(1), B) == []
    fed.send(2, C)
    fed.send(0, A)
    assert sorted(str(entry) for entry in fed.run()) == sorted(str(e) for e in [(0, A), (1, A), (2, C)])
    assert fed.channels.blocked_channels == (1,)
    fed.send(2, B)
    assert fed.send(0, barrier(1)) == []
    log = fed.run()
    trigger = log.index(("trigger", 1, True))
    captured = [entry for entry in log if entry[0] == "add"]
    was_delivered = (2, B) in log[:trigger]
    assert captured == ([] if was_delivered else [("add", 1, 2, [B])])
    assert log.index((1, B)) > trigger
    assert fed.send(2, barrier(1)) == [("finish", 1)]


def test_a_checkpoint_that_is_replaced_by_a_newer_cancelled_one_is_forgotten_by_the_writer() -> None:
    fed = Input()
    fed.send(0, barrier(1))
    fed.send(1, CancelCheckpointMarker(2))
    assert fed.run() == [("forget", 1), ("abort", 2)]
    assert fed.send(1, A) == []


def test_savepoint_is_aligned_and_captures_nothing() -> None:
    fed = Input()
    fed.send(0, A, savepoint(1), B)
    assert fed.run() == [(0, A)]
    fed.send(1, savepoint(1))
    assert fed.run() == [("trigger", 1, False), (0, B)]


def test_restored_elements_come_first_have_no_numbers_and_are_captured_again() -> None:
    fed = Input()
    fed.gate.restore(0, [A, Watermark(1)])
    fed.send(0, B)
    assert fed.send(1, barrier(1)) == [
        ("start", 1),
        ("trigger", 1, True),
        ("add", 1, 0, [A, Watermark(1), B]),
    ]
    assert fed.run() == [(0, A), (0, Watermark(1)), (0, B)]
    assert fed.gate.consumed(0) == 1
    with pytest.raises(ValueError, match="before anything arrives"):
        fed.gate.restore(0, [A])


def test_checkpoint_is_pending_until_its_barrier_has_arrived_on_every_channel() -> None:
    fed = Input()
    handler = fed.gate.handler
    fed.send(0, A, barrier(1))
    assert handler.pending == (1,)
    fed.send(1, barrier(1))
    assert handler.pending == ()
    assert handler.latest_checkpoint_id == -1
    fed.run()
    assert handler.latest_checkpoint_id == 1
    assert handler.statistics().triggered == 1


def test_end_of_an_aligned_channel_stands_for_its_barrier_when_it_is_consumed() -> None:
    fed = Input(aligned=frozenset({1}))
    assert fed.send(0, A, barrier(1)) == []
    assert fed.send(1, EndOfPartition()) == []
    assert fed.channels.poll() is not None, "the task has taken A"
    fed.gate.process(1, EndOfPartition())
    assert fed.take() == [("start", 1), ("trigger", 1, True), ("finish", 1)]


def test_checkpoint_that_is_given_up_before_its_trigger_leaves_no_channel_blocked() -> None:
    fed = Input(aligned=frozenset({1}))
    fed.send(0, barrier(1), B)
    assert fed.run() == []
    assert fed.channels.blocked_channels == (0,)
    fed.send(1, CancelCheckpointMarker(1))
    assert fed.run() == [("abort", 1), (0, B)]
    assert fed.channels.blocked_channels == ()


def test_cancellation_on_a_channel_that_has_ended_is_refused() -> None:
    fed = Input()
    fed.send(1, barrier(1))
    fed.send(0, barrier(1), EndOfPartition())
    fed.run()
    with pytest.raises(StreamCorruptError, match="the cancellation of checkpoint 2 came on channel 0"):
        fed.gate.process(0, CancelCheckpointMarker(2))
    assert fed.take() == []


def test_barrier_and_end_whose_arrival_was_not_announced_count_when_they_are_consumed() -> None:
    fed = Input()
    fed.gate.process(0, barrier(1))
    assert fed.take() == [("start", 1), ("trigger", 1, True)]
    fed.gate.process(1, EndOfPartition())
    assert fed.take() == [("finish", 1)]


def test_alignment_lasts_from_the_first_sign_of_a_checkpoint_to_its_last_barrier() -> None:
    fed = Input()
    fed.timers.advance(100)
    fed.send(0, barrier(1))
    fed.timers.advance(3)
    assert fed.gate.handler.alignment_duration == 0.0
    fed.send(1, barrier(1))
    assert fed.gate.handler.alignment_duration == 3.0


def test_cancellation_releases_channels_that_wait_for_one_that_no_barrier_overtakes() -> None:
    """An unaligned checkpoint holds channels back only until the aligned ones have their barriers."""
    fed = Input(3, aligned=frozenset({2}))
    fed.send(0, barrier(1), A)
    fed.send(1, B, barrier(1))
    assert [element for _, element in fed.run()] == [B]
    assert fed.gate.handler.statistics().blocked == len(fed.channels.blocked_channels) == 2
    fed.send(2, CancelCheckpointMarker(1))
    assert fed.run() == [("abort", 1), (0, A)]
    statistics = fed.gate.handler.statistics()
    assert (statistics.blocked, statistics.cancelled_alignments) == (0, 1)
    fed.send(0, barrier(2))
    fed.send(2, barrier(2))
    fed.send(1, CancelCheckpointMarker(2))
    fed.run()
    assert fed.gate.handler.statistics().cancelled_alignments == 1, "it had begun, so nothing was held back"


def test_trigger_reports_the_alignment_of_its_own_checkpoint() -> None:
    two = Input()
    for checkpoint_id in (1, 2):
        two.send(0, barrier(checkpoint_id))
        two.timers.advance(3)
        two.send(1, barrier(checkpoint_id))
    assert two.alignments == [0.0, 0.0]
    assert two.gate.handler.alignment_duration == 3.0
