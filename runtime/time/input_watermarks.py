"""`InputWatermarks`: event time of an operator with one or two inputs, each with several channels."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.record.elements import StreamStatus, Watermark
from penstock.runtime.time.watermarks import WatermarkValve


class InputWatermarks:
    """Merges the watermarks of all channels, and for an operator with two inputs also those of each input.

    Args:
        inputs: For each channel the number of its input.

    Example:
        >>> time = InputWatermarks([0, 1])
        >>> time.watermark(0, Watermark(5)), time.watermark(1, Watermark(3))
        (None, Watermark(timestamp=3))
        >>> time.of_input(0), time.of_input(1)
        (5, 3)
    """

    def __init__(self, inputs: Sequence[int]) -> None:
        self._whole = WatermarkValve(len(inputs))
        counts = [inputs.count(number) for number in range(max(inputs, default=0) + 1)]
        self._sides = [WatermarkValve(count) for count in counts] if len(counts) > 1 else [self._whole]
        #: For each channel the valve of its input, and the channel's number in this valve.
        self._places = [
            (self._sides[number], inputs[:channel].count(number)) for channel, number in enumerate(inputs)
        ]

    def watermark(self, channel: int, watermark: Watermark) -> Watermark | None:
        """Take a channel's watermark; return the watermark of the operator if it advances."""
        side, place = self._places[channel]
        if side is not self._whole:
            side.watermark(place, watermark)
        return self._whole.watermark(channel, watermark)

    def status(self, channel: int, status: StreamStatus) -> tuple[StreamStatus | None, Watermark | None]:
        """Take a channel's status; return the changes for the operator."""
        side, place = self._places[channel]
        if side is not self._whole:
            side.status(place, status)
        return self._whole.status(channel, status)

    def end(self, channel: int) -> tuple[StreamStatus | None, Watermark | None]:
        """Take the end of a channel's data; return the changes for the operator."""
        return self.status(channel, StreamStatus.IDLE)

    def of_input(self, input_index: int) -> int | None:
        """Event time of one input, or the operator's event time if it is later because the input is idle."""
        reached = [valve.reached for valve in (self._sides[input_index], self._whole)]
        return max((at for at in reached if at is not None), default=None)
