"""The input of a chain that is fed by channels."""

from __future__ import annotations

from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.record.batch_codec import BatchCodec
from penstock.runtime.record.elements import (
    Buffer,
    EndOfData,
    EndOfPartition,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.task.task_input import (
    CONSUMED,
    NOTHING,
    BatchArrived,
    DataEnded,
    EventTimeAdvanced,
    InputProgress,
    TaskInput,
)
from penstock.runtime.time.watermark_valve import WatermarkValve


class NetworkInput(TaskInput):
    """Takes elements from the input gate, where barriers have been dealt with already.

    Args:
        codec: Decodes buffers.

    Attributes:
        last_channel: The channel of the last batch.
        savepoint_id: The savepoint that the job is being stopped with, as an end of data says.
    """

    def __init__(self, gate: CheckpointedInputGate, channels: int, codec: BatchCodec) -> None:
        self.gate = gate
        self.last_channel = -1
        self.savepoint_id: int | None = None
        self._codec = codec
        self._valve = WatermarkValve(channels)
        self._open_data = set(range(channels))
        self._open_channels = set(range(channels))
        self._drain = True

    def poll(self, max_rows: int) -> InputProgress:
        """The next buffer or event of any channel that is not blocked."""
        polled = self.gate.poll_next()
        if polled is None:
            return CONSUMED if self.gate.has_more else NOTHING
        channel, element = polled
        if isinstance(element, Buffer):
            self.last_channel = channel
            return BatchArrived(self._codec.decode(element))
        return self._event(channel, element)

    @property
    def is_exhausted(self) -> bool:
        """Whether every channel has ended."""
        return not self._open_channels

    def _event(self, channel: int, element: StreamElement) -> InputProgress:
        if isinstance(element, Watermark):
            return self._advanced(self._valve.watermark(channel, element))
        if isinstance(element, StreamStatus):
            status, watermark = self._valve.status(channel, element)
            return CONSUMED if status is None and watermark is None else EventTimeAdvanced(watermark, status)
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
        if not self._drain:  # the job is being stopped, so nothing may fire
            return CONSUMED
        status, watermark = self._valve.end(channel)
        return CONSUMED if status is None and watermark is None else EventTimeAdvanced(watermark, status)

    def _advanced(self, watermark: Watermark | None) -> InputProgress:
        return CONSUMED if watermark is None else EventTimeAdvanced(watermark)
