"""The sending end of one channel: events between rows, and where they end a frame."""

from __future__ import annotations

import pytest
from sending_channel import Channel

from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    StreamStatus,
    Watermark,
)


@pytest.fixture
def channel() -> Channel:
    return Channel()


@pytest.mark.parametrize(
    "event",
    [CheckpointBarrier(1, 0.0), CancelCheckpointMarker(1), EndOfData(), EndOfPartition()],
    ids=lambda event: type(event).__name__,
)
def test_barriers_and_ends_need_no_credit(channel: Channel, event: CheckpointBarrier) -> None:
    channel.add(1)
    channel.sending.flush()
    channel.add(2)
    channel.sending.flush()
    channel.sending.add_event(event)
    assert channel.sent[-1] == event
    assert channel.sending.is_available


@pytest.mark.parametrize("event", [Watermark(5), StreamStatus.IDLE], ids=str)
def test_watermarks_and_status_need_a_credit_but_stop_nobody(
    channel: Channel, event: Watermark | StreamStatus
) -> None:
    for row in range(2):
        channel.add(row)
        channel.sending.flush()
    channel.sending.add_event(event)
    assert event not in channel.sent
    assert channel.sending.is_available
    assert not channel.sending.is_drained
    channel.sending.consumed(0, 0.0)
    assert channel.sent[-1] == event
    assert channel.sending.statistics().outstanding == 2


def test_event_comes_behind_the_open_rows_that_were_there_before_it(channel: Channel) -> None:
    channel.add(1)
    channel.sending.add_event(Watermark(7))
    channel.add(2)
    channel.sending.add_event(EndOfData())
    channel.sending.consumed(0, 0.0)
    channel.sending.consumed(1, 0.0)
    assert channel.sent == [RowBatch([1]), Watermark(7), RowBatch([2]), EndOfData()]


def test_event_waits_behind_buffers_that_wait_for_a_credit(channel: Channel) -> None:
    for row in range(3):
        channel.add(row)
        channel.sending.flush()
    barrier = CheckpointBarrier(1, 0.0)
    channel.sending.add_event(barrier)
    assert barrier not in channel.sent
    channel.sending.consumed(0, 0.0)
    assert channel.sent[-2:] == [RowBatch([2]), barrier]


def test_newer_watermark_replaces_one_that_waits_right_in_front_of_it(channel: Channel) -> None:
    for row in range(2):
        channel.add(row)
        channel.sending.flush()
    channel.sending.add_event(Watermark(1))
    channel.sending.add_event(Watermark(2))
    channel.add("between")
    channel.sending.add_event(Watermark(3))
    channel.sending.add_event(StreamStatus.IDLE)
    channel.sending.add_event(Watermark(4))
    for first in range(10):
        channel.sending.consumed(first, 0.0)
    assert channel.sent[2:] == [
        Watermark(2),
        RowBatch(["between"]),
        Watermark(3),
        StreamStatus.IDLE,
        Watermark(4),
    ]


def test_watermark_that_left_is_not_replaced(channel: Channel) -> None:
    channel.sending.add_event(Watermark(1))
    channel.sending.add_event(Watermark(2))
    assert channel.sent == [Watermark(1), Watermark(2)]


def test_aligned_barrier_ends_its_frame() -> None:
    channel = Channel(credits=3)
    for row in range(4):
        channel.add(row)
        channel.sending.flush()
    barrier = CheckpointBarrier(1, 0.0)
    channel.sending.add_event(barrier)
    channel.sending.add_event(EndOfData())
    channel.sending.consumed(0, 0.0)
    assert channel.frames[3] == [RowBatch([3]), barrier]
    assert channel.frames[5] == [EndOfData()]


def test_barrier_of_an_unaligned_checkpoint_that_stays_in_line_ends_its_frame_too() -> None:
    channel = Channel(credits=1)
    barrier = CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True))
    channel.add(0)
    channel.sending.flush()
    channel.add(1)
    channel.sending.flush()
    channel.sending.add_event(barrier)
    channel.sending.add_event(EndOfData())
    channel.sending.consumed(0, 0.0)
    assert channel.frames[1] == [RowBatch([1]), barrier]
