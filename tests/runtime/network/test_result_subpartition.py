"""The sending end of one channel: buffers, order, numbers, credits and frames."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.runtime.network.buffer_budget import BufferBudget
from penstock.runtime.network.result_subpartition import ResultSubpartition
from penstock.runtime.record.batch_codec import BatchCodec
from penstock.runtime.record.element_codec import decode_element
from penstock.runtime.record.elements import (
    ArrowBatch,
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    StreamElement,
    StreamStatus,
    Watermark,
)


class Channel:
    """A subpartition with what it sent: frames of decoded elements by their first number."""

    def __init__(self, credits: int = 2, rows: int = 4, size: int = 1 << 20) -> None:
        self.codec = BatchCodec()
        self.frames: dict[int, list[StreamElement | Batch]] = {}
        self.sending = ResultSubpartition(self.codec, self._send, credits, BufferBudget(rows, size))

    def _send(self, first: int, elements: list[bytes]) -> None:
        assert first == sum(map(len, self.frames.values())), "numbers follow each other"
        decoded = [decode_element(element) for element in elements]
        self.frames[first] = [self.codec.decode(e) if isinstance(e, Buffer) else e for e in decoded]

    def add(self, *rows: object) -> None:
        self.sending.add_rows(list(rows), None)

    @property
    def sent(self) -> list[StreamElement | Batch]:
        return [element for frame in self.frames.values() for element in frame]

    @property
    def rows(self) -> list[object]:
        return [row for batch in self.sent if isinstance(batch, RowBatch) for row in batch.rows]


@pytest.fixture
def channel() -> Channel:
    return Channel()


def test_rows_wait_in_the_open_buffer_until_it_is_full(channel: Channel) -> None:
    channel.add(1, 2, 3)
    assert channel.frames == {}
    assert channel.sending.has_open_rows
    channel.add(4, 5)
    assert channel.sent == [RowBatch([1, 2, 3, 4])]
    assert channel.sending.has_open_rows


def test_long_batch_leaves_in_full_buffers_in_one_frame() -> None:
    channel = Channel(credits=8)
    channel.add(*range(11))
    assert channel.frames == {0: [RowBatch([0, 1, 2, 3]), RowBatch([4, 5, 6, 7])]}


def test_flush_sends_what_is_open(channel: Channel) -> None:
    channel.add(1)
    channel.sending.flush()
    channel.sending.flush()
    assert channel.frames == {0: [RowBatch([1])]}


def test_idle_channel_sends_at_once_and_a_busy_one_waits_for_more(channel: Channel) -> None:
    channel.add(1)
    channel.sending.flush_if_idle()
    channel.add(2)
    channel.sending.flush_if_idle()
    assert channel.rows == [1]
    channel.sending.consumed(0)
    assert channel.rows == [1, 2]


def test_no_more_buffers_are_outstanding_than_there_are_credits(channel: Channel) -> None:
    for row in range(4):
        channel.add(row)
        channel.sending.flush()
    assert channel.rows == [0, 1]
    assert not channel.sending.is_available
    assert channel.sending.statistics().outstanding == 2
    channel.sending.consumed(0)
    assert channel.rows == [0, 1, 2]
    assert not channel.sending.is_available
    channel.sending.consumed(1)
    assert channel.rows == [0, 1, 2, 3]
    assert channel.sending.is_available


def test_answer_that_comes_twice_or_for_no_frame_gives_no_credit(channel: Channel) -> None:
    for row in range(6):
        channel.add(row)
        channel.sending.flush()
    channel.sending.consumed(0)
    channel.sending.consumed(0)
    channel.sending.consumed(77)
    assert channel.rows == [0, 1, 2]
    assert channel.sending.statistics().outstanding == 2


def test_answers_may_come_in_any_order(channel: Channel) -> None:
    for row in range(4):
        channel.add(row)
        channel.sending.flush()
    channel.sending.consumed(1)
    channel.sending.consumed(2)
    channel.sending.consumed(0)
    channel.sending.consumed(3)
    assert channel.rows == [0, 1, 2, 3]
    assert channel.sending.is_drained


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
    channel.sending.consumed(0)
    assert channel.sent[-1] == event
    assert channel.sending.statistics().outstanding == 2


def test_event_comes_behind_the_open_rows_that_were_there_before_it(channel: Channel) -> None:
    channel.add(1)
    channel.sending.add_event(Watermark(7))
    channel.add(2)
    channel.sending.add_event(EndOfData())
    channel.sending.consumed(0)
    channel.sending.consumed(1)
    assert channel.sent == [RowBatch([1]), Watermark(7), RowBatch([2]), EndOfData()]


def test_event_waits_behind_buffers_that_wait_for_a_credit(channel: Channel) -> None:
    for row in range(3):
        channel.add(row)
        channel.sending.flush()
    barrier = CheckpointBarrier(1, 0.0)
    channel.sending.add_event(barrier)
    assert barrier not in channel.sent
    channel.sending.consumed(0)
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
        channel.sending.consumed(first)
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
    channel.sending.consumed(0)
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
    channel.sending.consumed(0)
    assert channel.frames[1] == [RowBatch([1]), barrier]


def test_credits_of_a_frame_come_back_together() -> None:
    channel = Channel(credits=2, rows=1)
    channel.add(1, 2, 3, 4)
    assert channel.frames == {0: [RowBatch([1]), RowBatch([2])]}
    channel.sending.consumed(0)
    assert channel.frames[2] == [RowBatch([3]), RowBatch([4])]


def test_rows_with_and_without_timestamps_do_not_share_a_buffer(channel: Channel) -> None:
    channel.sending.add_rows(["a"], [1])
    channel.sending.add_rows(["b"], [2])
    channel.sending.add_rows(["c"], None)
    channel.sending.add_rows(["d"], [4])
    channel.sending.flush()
    channel.sending.consumed(0)
    assert channel.sent == [RowBatch(["a", "b"], [1, 2]), RowBatch(["c"]), RowBatch(["d"], [4])]


def test_timestamps_are_cut_with_their_rows(channel: Channel) -> None:
    channel.sending.add_rows(list("abcdef"), [1, 2, 3, 4, 5, 6])
    channel.sending.flush()
    assert channel.sent == [RowBatch(list("abcd"), [1, 2, 3, 4]), RowBatch(list("ef"), [5, 6])]


def test_no_rows_leave_no_trace(channel: Channel) -> None:
    channel.sending.add_rows([], [])
    channel.add(1)
    channel.sending.add_rows([], [])
    channel.add(2)
    channel.sending.flush()
    assert channel.sent == [RowBatch([1, 2])]


def test_arrow_batch_is_a_buffer_of_its_own_behind_open_rows(channel: Channel) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2]})
    channel.add("before")
    channel.sending.add_arrow(ArrowBatch(batch))
    assert channel.sent == [RowBatch(["before"]), ArrowBatch(batch)]


def test_rows_of_a_buffer_follow_the_budget_of_bytes() -> None:
    channel = Channel(credits=100, rows=64, size=1000)
    for _ in range(8):
        channel.add(*["x" * 100] * 64)
    sizes = [len(batch.rows) for batch in channel.sent if isinstance(batch, RowBatch)]
    assert sizes[0] == 64
    assert max(sizes[1:]) <= 10


def test_drained_means_that_everything_was_consumed(channel: Channel) -> None:
    assert channel.sending.is_drained
    channel.add(1)
    assert not channel.sending.is_drained
    channel.sending.flush()
    channel.sending.add_event(EndOfPartition())
    assert not channel.sending.is_drained
    channel.sending.consumed(0)
    assert not channel.sending.is_drained
    channel.sending.consumed(1)
    assert channel.sending.is_drained


def test_statistics_count_what_was_sent_and_what_waits(channel: Channel) -> None:
    for row in range(3):
        channel.add(row)
        channel.sending.flush()
    statistics = channel.sending.statistics()
    assert (statistics.frames, statistics.outstanding, statistics.queued) == (2, 2, 1)
    assert statistics.bytes > 0
    channel.sending.consumed(0)
    channel.sending.consumed(1)
    channel.sending.consumed(2)
    statistics = channel.sending.statistics()
    assert (statistics.buffers, statistics.frames, statistics.outstanding, statistics.queued) == (3, 3, 0, 0)
