"""All channels of a subtask: turns, blocking, ends, credits and gaps."""

from __future__ import annotations

import pytest

from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.graph.execution_graph import InputChannelSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.network.input_channel import InputChannel, MissingElementsError
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import EndOfPartition, Watermark
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId
from penstock.runtime.testing.manual_time import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def gate(clock: ManualClock) -> InputGate:
    return InputGate((InputChannel(i, clock, f"lines[{i}]") for i in range(3)), gap_timeout=30.0)


def marks(count: int) -> list[bytes]:
    return [encode_element(Watermark(number)) for number in range(count)]


def turns(gate: InputGate) -> list[int]:
    return [channel for channel, _ in iter(gate.poll, None)]


def test_channels_with_data_take_turns(gate: InputGate) -> None:
    gate.receive(2, 0, marks(3))
    gate.receive(0, 0, marks(2))
    assert turns(gate) == [2, 0, 2, 0, 2]


def test_channel_that_gets_data_again_queues_behind_the_others(gate: InputGate) -> None:
    gate.receive(0, 0, marks(1))
    gate.receive(1, 0, marks(2))
    assert gate.poll() == (0, Watermark(0))
    gate.receive(0, 1, marks(1))
    assert turns(gate) == [1, 0, 1]


def test_channel_that_receives_twice_before_its_turn_has_one_turn(gate: InputGate) -> None:
    gate.receive(0, 0, marks(2))
    gate.receive(0, 2, marks(1))
    gate.receive(1, 0, marks(2))
    assert turns(gate) == [0, 1, 0, 1, 0]


def test_blocked_channel_is_passed_over_and_keeps_what_arrives(gate: InputGate) -> None:
    gate.receive(0, 0, marks(2))
    gate.receive(1, 0, marks(1))
    gate.poll()
    gate.block(0)
    gate.receive(0, 2, marks(1))
    assert turns(gate) == [1]
    assert gate.blocked_channels == (0,)
    gate.unblock(0)
    assert turns(gate) == [0, 0]
    assert gate.consumed(0) == 3


def test_channel_that_is_blocked_and_unblocked_before_its_turn_keeps_one_place(gate: InputGate) -> None:
    gate.receive(0, 0, marks(2))
    gate.receive(1, 0, marks(2))
    gate.block(0)
    gate.unblock(0)
    gate.unblock(0)
    assert turns(gate) == [0, 1, 0, 1]


def test_blocked_channel_without_data_is_polled_when_data_comes_after_the_unblocking(gate: InputGate) -> None:
    gate.block(1)
    gate.unblock(1)
    gate.receive(1, 0, marks(1))
    assert turns(gate) == [1]


def test_gate_is_finished_when_the_end_of_every_channel_was_consumed(gate: InputGate) -> None:
    for channel in range(3):
        assert not gate.is_finished
        gate.receive(channel, 0, [encode_element(EndOfPartition())])
        assert not gate.channels[channel].has_ended
        assert gate.poll() == (channel, EndOfPartition())
        assert gate.channels[channel].has_ended
    assert gate.is_finished


def test_progress_is_reported_once_for_each_channel(gate: InputGate) -> None:
    gate.receive(1, 0, marks(2))
    gate.receive(0, 0, marks(1))
    assert gate.take_progressed() == []
    turns(gate)
    assert gate.take_progressed() == [0, 1]
    assert gate.take_progressed() == []
    assert [gate.consumed(channel) for channel in range(3)] == [1, 2, 0]


def test_old_gap_fails_with_channel_sender_number_and_deadline(gate: InputGate, clock: ManualClock) -> None:
    clock.advance(10)
    gate.receive(1, 4, marks(2))
    assert gate.check_gaps(39.9) == 40.0
    with pytest.raises(MissingElementsError) as raised:
        gate.check_gaps(40.0)
    text = str(raised.value)
    for part in (
        "channel 1 (from lines[1])",
        "element 0 has not arrived",
        "starting at number 4",
        "30.0 s",
        "restart",
    ):
        assert part in text


def test_oldest_gap_says_when_to_check_again_and_a_closed_one_does_not(
    gate: InputGate, clock: ManualClock
) -> None:
    assert gate.check_gaps(0.0) is None
    gate.receive(0, 1, marks(1))
    clock.advance(5)
    gate.receive(2, 1, marks(1))
    assert gate.check_gaps(6.0) == 30.0
    gate.receive(0, 0, marks(1))
    assert gate.check_gaps(6.0) == 35.0
    gate.receive(2, 0, marks(1))
    assert gate.check_gaps(1000.0) is None


@pytest.mark.parametrize("channel", [3, -1])
def test_unknown_channel_is_refused(gate: InputGate, channel: int) -> None:
    for use in (lambda: gate.receive(channel, 0, marks(1)), lambda: gate.consumed(channel)):
        with pytest.raises(StreamCorruptError, match=f"no input channel {channel}; this subtask has 3"):
            use()


def test_channels_must_be_numbered_through(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match=r"not \[1, 0\]"):
        InputGate([InputChannel(1, clock), InputChannel(0, clock)])


def test_gate_of_deployed_channels_spans_all_inputs_and_names_senders(clock: ManualClock) -> None:
    edge, partitioner = EdgeId("map", None, "count"), Partitioner(Partitioning.REBALANCE)
    specs = [
        InputChannelSpec(index, gate, SubtaskId("map", index), edge, partitioner)
        for index, gate in enumerate([0, 0, 1])
    ]
    channels = InputGate.of_specs(specs, clock).channels
    assert [(channel.index, channel.sender) for channel in channels] == [(i, f"map[{i}]") for i in range(3)]
