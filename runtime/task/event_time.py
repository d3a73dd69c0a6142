"""Brings watermarks through a subtask: operators first, then the outputs."""

from __future__ import annotations

from penstock.runtime.operators.chain import OperatorChain, Work
from penstock.runtime.record.elements import StreamStatus, Watermark
from penstock.runtime.task.outputs import SubtaskOutputs


class EventTime:
    """The event time that a subtask's operators have reached; it never goes back and repeats nothing.

    Args:
        chain: The operators; watermarks leave it behind what they fire.
        outputs: Where statuses go.
    """

    def __init__(self, chain: OperatorChain, outputs: SubtaskOutputs) -> None:
        self._chain = chain
        self._outputs = outputs
        self._reached: Watermark | None = None

    def advance(self, watermark: Watermark | None, status: StreamStatus | None = None) -> Work:
        """Fire what a watermark fires and send it on, then the status; either may be missing.

        Raises:
            OperatorError: An operator failed.
        """
        if watermark is not None and (self._reached is None or watermark > self._reached):
            self._reached = watermark
            yield from self._chain.process_watermark(watermark)
        if status is not None:
            self._outputs.broadcast_event(status)
