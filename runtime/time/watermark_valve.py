"""The smallest watermark over all input channels (Flink's `StatusWatermarkValve`)."""

from __future__ import annotations

from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark

_NONE = -(1 << 63)


class WatermarkValve:
    """Aligns the watermarks of several channels; idle channels are left out.

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
        self._emitted = _NONE
        self._status = StreamStatus.ACTIVE

    def watermark(self, channel: int, watermark: Watermark) -> Watermark | None:
        """A channel's watermark came; the watermark of the whole input if that advances it."""
        if watermark.timestamp <= self._watermarks[channel]:
            return None
        self._watermarks[channel] = watermark.timestamp
        return self._advance()

    def status(self, channel: int, status: StreamStatus) -> tuple[StreamStatus | None, Watermark | None]:
        """A channel became idle or active; what changes for the input as a whole."""
        self._active[channel] = status is StreamStatus.ACTIVE
        whole = StreamStatus.ACTIVE if any(self._active) else StreamStatus.IDLE
        changed = whole if whole is not self._status else None
        self._status = whole
        return changed, self._advance() if any(self._active) else None

    def channel_ended(self, channel: int) -> Watermark | None:
        """A channel has ended: it holds event time back no longer."""
        return self.watermark(channel, Watermark(END_OF_TIME))

    def _advance(self) -> Watermark | None:
        smallest = (
            min(w for w, active in zip(self._watermarks, self._active, strict=True) if active)
            if any(self._active)
            else _NONE
        )
        if smallest <= self._emitted:
            return None
        self._emitted = smallest
        return Watermark(smallest)
