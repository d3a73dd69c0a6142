"""Inputs of a subtask's work: channels or a source."""

from __future__ import annotations

import pytest

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.barrier.factory import create_barrier_handler
from penstock.runtime.config.checkpointing import CheckpointingMode
from penstock.runtime.errors import CodecError, OperatorLocation
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.source import ConnectorContext, DeadLetter, Polled
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.source_watermarks import TimeChange
from penstock.runtime.record.element_codec import BatchCodec, encode_element
from penstock.runtime.record.elements import (
    END_OF_TIME,
    Buffer,
    EndOfData,
    EndOfPartition,
    Event,
    RowBatch,
    StreamStatus,
    Watermark,
)
from penstock.runtime.task.task_input import (
    CONSUMED,
    NOTHING,
    BatchArrived,
    DataEnded,
    NetworkInput,
    Nothing,
    SourceInput,
)
from penstock.runtime.testing.manual_time import ManualClock

from subtask_setup import ScriptedSource  # isort: skip

CODEC = BatchCodec()
END = TimeChange(Watermark(END_OF_TIME))


class Channels:
    """The input of a subtask with several channels."""

    def __init__(self, count: int) -> None:
        clock = ManualClock()
        gate = InputGate(InputChannel(i, clock) for i in range(count))
        handler = create_barrier_handler(CheckpointingMode.EXACTLY_ONCE, count, gate, clock)
        self.input = NetworkInput(CheckpointedInputGate(gate, handler), [0] * count, CODEC)
        self._next = [0] * count

    def deliver(self, channel: int, *elements: Event | Buffer) -> None:
        self.input.gate.receive(channel, self._next[channel], [encode_element(e) for e in elements])
        self._next[channel] += len(elements)

    def drain(self) -> list[object]:
        progress = []
        while (polled := self.input.poll(100)) != NOTHING:
            progress += [] if polled == CONSUMED else [polled]
        return progress


def test_buffers_come_as_batches() -> None:
    channels = Channels(1)
    channels.deliver(0, CODEC.encode(RowBatch([1, 2])))
    assert channels.drain() == [BatchArrived(RowBatch([1, 2]))]


def test_damaged_buffer_is_an_error() -> None:
    channels = Channels(1)
    channels.deliver(0, Buffer(b"damaged", 3))
    with pytest.raises(CodecError):
        channels.drain()


def test_event_time_is_that_of_all_channels() -> None:
    channels = Channels(2)
    channels.deliver(0, Watermark(5), StreamStatus.IDLE)
    channels.deliver(1, Watermark(3), StreamStatus.IDLE)
    assert channels.drain() == [
        TimeChange(Watermark(3)),
        TimeChange(Watermark(5), StreamStatus.IDLE),
    ]


def test_data_ends_with_the_last_channel_and_is_told_once() -> None:
    channels = Channels(2)
    channels.deliver(0, Watermark(END_OF_TIME), EndOfData())
    assert channels.drain() == []
    channels.deliver(1, Watermark(END_OF_TIME), EndOfData())
    assert channels.drain() == [END, DataEnded(drain=True)]
    assert not channels.input.is_exhausted
    channels.deliver(0, EndOfPartition())
    channels.deliver(1, EndOfPartition())
    assert channels.drain() == []
    assert channels.input.is_exhausted


def test_data_is_drained_only_if_all_channels_are() -> None:
    channels = Channels(2)
    channels.deliver(0, EndOfData(drain=False))
    channels.deliver(1, EndOfData(drain=True))
    assert channels.drain() == [DataEnded(drain=False)]


def source_of(*script: Polled[int]) -> SourceInput:
    operator = SourceOperator(ScriptedSource(script))
    connector = ConnectorContext("job", "job", "source", 0, 1, 1, ManualClock())
    operator.open(OperatorContext(OperatorLocation("source", 0, 1), connector), [0])
    return SourceInput(operator)


def test_source_gives_batches_dead_letters_and_pauses() -> None:
    letter = DeadLetter("?", "no number", "file:1")
    source = source_of(Polled(RowBatch([1]), [letter]), Polled(dead_letters=[letter]), Polled(ready_at=4.0))
    letters = RowBatch([letter])
    assert source.poll(10) == BatchArrived(RowBatch([1]), letters)
    assert source.poll(10) == BatchArrived(None, letters)
    assert source.poll(10) == Nothing(4.0)


def test_source_that_has_ended_is_not_polled_again() -> None:
    source = source_of(Polled(RowBatch([1]), finished=True))
    assert source.poll(10) == BatchArrived(RowBatch([1]), then=DataEnded(drain=True))
    assert source.poll(10) == NOTHING
    assert source.is_exhausted
