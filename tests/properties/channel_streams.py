"""Input of the laws of barriers: streams of channels, written down as plain values."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)

#: One channel's stream: a label is data, a number n is a barrier, -n-1 cancels n, None ends the channel.
Stream = list[str | int | None]

#: What becomes of one barrier of a channel that need not have all of them.
OFTEN_A_BARRIER = (*["barrier"] * 8, "cancel", "skip")


def draw_stream(
    draw: st.DrawFn, channel: int, ids: int, kinds: tuple[str, ...] = OFTEN_A_BARRIER, *, may_end: bool
) -> Stream:
    """A stream with some data around up to `ids` barriers.

    Args:
        draw: Hypothesis's.
        channel: Its number, which its labels begin with.
        ids: Barriers are 0 to one less than that.
        kinds: What each of them may be: "barrier", "cancel" or "skip".
        may_end: Whether the channel may end anywhere.
    """
    stream: Stream = []
    for checkpoint_id in range(ids + 1):
        stream += [f"{channel}.{len(stream) + i}" for i in range(draw(st.integers(0, 2)))]
        kind = draw(st.sampled_from(kinds)) if len(kinds) > 1 else kinds[0]
        if checkpoint_id < ids and kind != "skip":
            stream.append(checkpoint_id if kind == "barrier" else -checkpoint_id - 1)
    if may_end and draw(st.booleans()):
        stream = [*stream[: draw(st.integers(0, len(stream)))], None]
    return stream


def labels(stream: Stream, checkpoint_id: int | None = None) -> list[str]:
    """The data in front of a barrier; all data when the stream has no such barrier."""
    if checkpoint_id is not None and checkpoint_id in stream:
        stream = stream[: stream.index(checkpoint_id)]
    return [entry for entry in stream if isinstance(entry, str)]


def next_barrier(stream: Stream, checkpoint_id: int) -> int | None:
    """The barrier of a checkpoint, or of the next one where a sender has left it out; `None` without."""
    if checkpoint_id in stream:
        return checkpoint_id
    return next((entry for entry in stream if isinstance(entry, int) and entry > checkpoint_id), None)


def element_of(entry: str | int | None) -> StreamElement:
    """The element that an entry of a stream stands for; barriers are aligned."""
    if entry is None:
        return EndOfPartition()
    if isinstance(entry, str):
        return Buffer(entry.encode(), 1)
    return CheckpointBarrier(entry, 0.0) if entry >= 0 else CancelCheckpointMarker(-entry - 1)
