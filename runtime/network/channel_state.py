"""`ChannelStateWriter`: the port through which in-flight data becomes part of an unaligned checkpoint.

The data that a barrier overtakes in a channel belongs to the checkpoint. The receiver captures the sent data
(its input), and the sender the waiting data (its output). No element is captured twice: it belongs to the
sender until it is sent and numbered, then to the receiver. The order of the calls is the order of the
elements. A restored channel begins with the receiver's part; the sender's part follows.

The calls of one checkpoint are `start`, any number of `add_input` and `add_output`, and `finish_input` and
`finish_output` once each. `abort` may come at any time, and later calls for that checkpoint do nothing. So
callers need not know that a checkpoint was aborted elsewhere.

The model is Flink's interface of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.record.element_codec import ElementKind
from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)

#: Kinds of captured elements, see `is_captured`; every version has stored exactly these.
CAPTURED: Final = frozenset(
    {ElementKind.BUFFER, ElementKind.WATERMARK, ElementKind.STREAM_STATUS, ElementKind.END_OF_DATA}
)

#: Never captured: these refer to checkpoints or channels of one attempt, which a restore ends.
_NOT_CAPTURED = (CheckpointBarrier, CancelCheckpointMarker, EndOfPartition)


class ChannelStateWriter(Protocol):
    """Collects the in-flight data of one subtask's checkpoints; no call blocks."""

    def start(self, checkpoint_id: int) -> None:
        """Begin to collect in-flight data of this checkpoint; a second call does nothing."""
        ...

    def add_input(self, checkpoint_id: int, channel: int, elements: Sequence[StreamElement]) -> None:
        """Add elements that stand in front of a channel's barrier and that the snapshot does not cover."""
        ...

    def finish_input(self, checkpoint_id: int) -> None:
        """Complete the input part: every barrier has arrived."""
        ...

    def add_output(
        self, checkpoint_id: int, channel: OutputChannelSpec, elements: Sequence[bytes]
    ) -> None: ...

    def finish_output(self, checkpoint_id: int) -> None:
        """Complete the output part: the barrier has left on every output."""
        ...

    def abort(self, checkpoint_id: int) -> None: ...


def is_captured(element: StreamElement) -> bool:
    """Whether an element in flight belongs to the channel state: data, and events that go with data."""
    return not isinstance(element, _NOT_CAPTURED)


def in_front_of(checkpoint_id: int, waiting: Sequence[StreamElement]) -> list[StreamElement]:
    """The waiting elements of a channel that belong to a checkpoint: all in front of its barrier.

    Skips barriers of older checkpoints: the elements behind them belong to this one.

    Example:
        >>> from penstock.runtime.record.elements import Watermark
        >>> older, own = CheckpointBarrier(1, 0.0), CheckpointBarrier(2, 0.0)
        >>> in_front_of(2, [Watermark(1), older, Watermark(2), own, Watermark(3)])
        [Watermark(timestamp=1), Watermark(timestamp=2)]
    """
    belonging = []
    for element in waiting:
        if isinstance(element, CheckpointBarrier) and element.checkpoint_id >= checkpoint_id:
            break
        if is_captured(element):
            belonging.append(element)
    return belonging
