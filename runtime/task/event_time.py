"""Brings watermarks and the status of the input through a subtask: operators first, then the outputs."""

from __future__ import annotations

from penstock.runtime.operators.chain.chain import OperatorChain, Work
from penstock.runtime.record.elements import StreamStatus, Watermark


class EventTime:
    """The event time that a subtask's operators have reached; it never goes back and repeats nothing.

    Args:
        chain: The operators; watermarks and statuses leave it behind what they fire.
    """

    def __init__(self, chain: OperatorChain) -> None:
        self._chain = chain
        self._reached: Watermark | None = None

    def advance(self, watermark: Watermark | None, status: StreamStatus | None = None) -> Work:
        """Fire what a watermark fires and send it on; either may be missing.

        An input that becomes active says so in front of its watermark, one that becomes idle behind it.

        Raises:
            OperatorError: An operator failed.
        """
        if status is StreamStatus.ACTIVE:
            yield from self._chain.process_status(status)
        if watermark is not None and (self._reached is None or watermark > self._reached):
            self._reached = watermark
            yield from self._chain.process_watermark(watermark)
        if status is StreamStatus.IDLE:
            yield from self._chain.process_status(status)
