"""The smallest watermark over all input channels (Flink's `StatusWatermarkValve`).

Event time of the whole input is that of the slowest channel that counts. An idle channel does not count. One
that becomes active again behind the others does not count until it has caught up. Event time can't go back,
and waiting would delay all other channels. When all channels are idle, event time advances to the greatest
watermark of all. Flink does so only where the last channel that became idle was the slowest, so there the
result depends on the order.

A channel that ends sends the end of event time first, idle or not. Unlike Flink, the valve remembers the
watermark of an idle channel, so that no end is lost. If one channel has ended and the other is idle, the
input is idle, and not at the end of time. Then the ended channel's last watermark before its end counts, as
if the other one had become idle first. Event time reaches its end when all channels have ended.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark

_NONE: Final = -(1 << 63)


class WatermarkValve:
    """Aligns the watermarks of several channels; see the module's docstring.

    Example:
        >>> valve = WatermarkValve(2)
        >>> valve.watermark(0, Watermark(5)) is None
        True
        >>> valve.watermark(1, Watermark(3))
        Watermark(timestamp=3)
    """

    def __init__(self, channels: int) -> None:
        self._watermarks = [_NONE] * channels
        self._active = [True] * channels
        self._counts = [True] * channels
        self._emitted = self._highest = _NONE

    def watermark(self, channel: int, watermark: Watermark) -> Watermark | None:
        """Take a channel's watermark; return the watermark of the whole input if it advances."""
        if watermark.timestamp <= self._watermarks[channel]:
            return None
        self._watermarks[channel] = watermark.timestamp
        if watermark.timestamp != END_OF_TIME:
            self._highest = max(self._highest, watermark.timestamp)
        self._recount(channel)
        return self._advance_to(self._slowest())

    def status(self, channel: int, status: StreamStatus) -> tuple[StreamStatus | None, Watermark | None]:
        """Take a channel's status; return the changes for the input as a whole."""
        was_active = any(self._active)
        self._active[channel] = status is StreamStatus.ACTIVE
        self._recount(channel)
        is_active = any(self._active)
        changed = None
        if is_active is not was_active:
            changed = StreamStatus.ACTIVE if is_active else StreamStatus.IDLE
        return changed, self._advance_to(self._slowest())

    def end(self, channel: int) -> tuple[StreamStatus | None, Watermark | None]:
        """Take the end of a channel's data; return the changes for the input as a whole."""
        return self.status(channel, StreamStatus.IDLE)

    def _recount(self, channel: int) -> None:
        """Count an active channel once it has caught up with the others, until it becomes idle or ends."""
        reached = self._watermarks[channel]
        caught_up = self._counts[channel] or reached >= self._emitted
        self._counts[channel] = self._active[channel] and caught_up and reached != END_OF_TIME

    def _slowest(self) -> int:
        """The watermark of the slowest channel that counts; of the fastest if all are idle or ended."""
        counted = [w for w, counts in zip(self._watermarks, self._counts, strict=True) if counts]
        if counted:
            return min(counted)
        if all(w == END_OF_TIME for w in self._watermarks):
            return END_OF_TIME
        return _NONE if any(self._catching_up) else self._highest

    @property
    def _catching_up(self) -> list[bool]:
        return [
            active and reached != END_OF_TIME
            for active, reached in zip(self._active, self._watermarks, strict=True)
        ]

    def _advance_to(self, timestamp: int) -> Watermark | None:
        if timestamp <= self._emitted:
            return None
        self._emitted = timestamp
        return Watermark(timestamp)
