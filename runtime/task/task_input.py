"""The input of a subtask: a source, input channels, or only the ends of input channels.

`TaskInput` is the port. `SourceInput` polls the source at the head of the chain, `NetworkInput` the channels.
`EndsOnlyInput` is for a subtask that had finished in the restored checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.errors import OperatorLocation, StreamCorruptError
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.source_watermarks import NO_CHANGE, TimeChange
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import (
    Batch,
    Buffer,
    EndOfData,
    EndOfPartition,
    RowBatch,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.time.input_watermarks import InputWatermarks


@dataclass(frozen=True, slots=True)
class DataEnded:
    """The end of the data of the whole input; with `drain`, event time advances to its end."""

    drain: bool


@dataclass(frozen=True, slots=True)
class BatchArrived:
    """Records to process; `batch` is `None` if there are no records.

    `dead_letters` are records that a source could not read. `is_active_again` marks the end of an idle
    period. `then` follows the records. `input_index` is the number of the operator's input.
    """

    batch: Batch | None
    dead_letters: RowBatch | None = None
    is_active_again: bool = False
    then: TimeChange | DataEnded | None = None
    input_index: int = 0


@dataclass(frozen=True, slots=True)
class Consumed:
    """An element that operators don't process was consumed; more may be available."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """The input has nothing now; poll it at the monotonic time `ready_at`, or after an arrival."""

    ready_at: float | None = None


#: A `TimeChange` applies to the whole input.
InputProgress: TypeAlias = BatchArrived | TimeChange | DataEnded | Consumed | Nothing

NOTHING: Final = Nothing()

CONSUMED: Final = Consumed()


class TaskInput(Protocol):
    def poll(self, max_rows: int) -> InputProgress: ...

    @property
    def is_exhausted(self) -> bool: ...


class NetworkInput(TaskInput):
    """Takes elements from the input gate, which has removed barriers.

    Args:
        inputs: For each channel the number of the operator's input.

    Attributes:
        watermarks: Event time of the operator and of its inputs.
        savepoint_id: Id of the savepoint that stops the job, from an EndOfData; `None` without one.
    """

    def __init__(self, gate: CheckpointedInputGate, inputs: Sequence[int], codec: BatchCodec) -> None:
        channels = len(inputs)
        self.gate = gate
        self.last_channel = -1
        self.savepoint_id: int | None = None
        self._codec = codec
        self._inputs = inputs
        self.watermarks = InputWatermarks(inputs)
        self._open_data = set(range(channels))
        self._open_channels = set(range(channels))
        self._drain = True

    def poll(self, max_rows: int) -> InputProgress:
        polled = self.gate.poll_next()
        if polled is None:
            return CONSUMED if self.gate.has_more else NOTHING
        channel, element = polled
        if isinstance(element, Buffer):
            self.last_channel = channel
            return BatchArrived(self._codec.decode(element), input_index=self._inputs[channel])
        return self._event(channel, element)

    @property
    def is_exhausted(self) -> bool:
        return not self._open_channels

    def _event(self, channel: int, element: StreamElement) -> InputProgress:
        if isinstance(element, Watermark):
            return _advanced(None, self.watermarks.watermark(channel, element))
        if isinstance(element, StreamStatus):
            return _advanced(*self.watermarks.status(channel, element))
        if isinstance(element, EndOfData):
            self._drain = self._drain and element.drain
            if element.savepoint_id is not None:
                self.savepoint_id = element.savepoint_id
            return self._channel_data_ended(channel)
        if isinstance(element, EndOfPartition):
            self._open_channels.discard(channel)
            return self._channel_data_ended(channel)
        return CONSUMED

    def _channel_data_ended(self, channel: int) -> InputProgress:
        if channel not in self._open_data:
            return CONSUMED
        self._open_data.discard(channel)
        if not self._open_data:
            return DataEnded(self._drain)
        if not self._drain:  # the job is stopping, so nothing may fire
            return CONSUMED
        return _advanced(*self.watermarks.end(channel))


def _advanced(status: StreamStatus | None, watermark: Watermark | None) -> InputProgress:
    return CONSUMED if status is None and watermark is None else TimeChange(watermark, status)


class SourceInput(TaskInput):
    """Polls a source; its barriers come from the JobMaster, not from this input."""

    def __init__(self, source: SourceOperator) -> None:
        self.source = source
        self._ended = False

    def poll(self, max_rows: int) -> InputProgress:
        # Reads nothing after a mark until its checkpoint is taken.
        if self._ended or self.source.mark is not None or self.source.is_held:
            return NOTHING
        polled = self.source.poll(max_rows)
        letters = RowBatch(list(polled.dead_letters)) if polled.dead_letters else None
        change = self.source.change
        wakes_up = change.status is StreamStatus.ACTIVE
        if polled.finished:
            self._ended = True
            return BatchArrived(polled.batch, letters, wakes_up, DataEnded(drain=True))
        if polled.batch is None and letters is None:
            return Nothing(polled.ready_at) if change is NO_CHANGE else change
        if change is NO_CHANGE:
            return BatchArrived(polled.batch, letters)
        then = TimeChange(change.watermark, None if wakes_up else change.status)
        return BatchArrived(polled.batch, letters, wakes_up, then)

    @property
    def is_exhausted(self) -> bool:
        return True


class EndsOnlyInput(TaskInput):
    """Takes the ends that finished senders send again; operators process none of them."""

    def __init__(self, location: OperatorLocation, network: NetworkInput | None) -> None:
        self._location = location
        self._network = network

    def poll(self, max_rows: int) -> InputProgress:
        progress = NOTHING if self._network is None else self._network.poll(max_rows)
        if isinstance(progress, BatchArrived):
            msg = f"{self._location} had finished in the restored checkpoint and was sent records"
            raise StreamCorruptError(msg)
        return progress if isinstance(progress, Nothing) else CONSUMED

    @property
    def is_exhausted(self) -> bool:
        return self._network is None or self._network.is_exhausted
