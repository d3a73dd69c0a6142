"""The sending end of one channel: buffers, order, numbers and credits."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sending_channel import Channel

from penstock.runtime.record.elements import (
    ArrowBatch,
    EndOfPartition,
    RowBatch,
)


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
    assert channel.sending.flush_if_idle(1.0) is None
    channel.add(2)
    assert channel.sending.flush_if_idle(1.1) is None, "an answer must come, whatever the time"
    assert channel.rows == [1]
    channel.sending.consumed(0, 1.2)
    assert channel.rows == [1, 2]


def test_idle_channel_that_has_just_sent_says_when_it_will_have_rested() -> None:
    channel = Channel(rest=0.5)
    channel.add(1)
    channel.sending.flush_if_idle(1.0)
    channel.sending.consumed(0, 0.0)
    assert channel.sending.flush_if_idle(1.1) is None, "nothing waits"
    channel.add(2)
    assert channel.sending.flush_if_idle(1.4) == 1.5
    assert channel.rows == [1]
    assert channel.sending.flush_if_idle(1.5) is None
    assert channel.rows == [1, 2]


def test_no_more_buffers_are_outstanding_than_there_are_credits(channel: Channel) -> None:
    for row in range(4):
        channel.add(row)
        channel.sending.flush()
    assert channel.rows == [0, 1]
    assert not channel.sending.is_available
    assert channel.sending.statistics().outstanding == 2
    channel.sending.consumed(0, 0.0)
    assert channel.rows == [0, 1, 2]
    assert not channel.sending.is_available
    channel.sending.consumed(1, 0.0)
    assert channel.rows == [0, 1, 2, 3]
    assert channel.sending.is_available


def test_answer_that_comes_twice_or_for_no_frame_gives_no_credit(channel: Channel) -> None:
    for row in range(6):
        channel.add(row)
        channel.sending.flush()
    channel.sending.consumed(0, 0.0)
    channel.sending.consumed(0, 0.0)
    channel.sending.consumed(77, 0.0)
    assert channel.rows == [0, 1, 2]
    assert channel.sending.statistics().outstanding == 2


def test_answers_may_come_in_any_order(channel: Channel) -> None:
    for row in range(4):
        channel.add(row)
        channel.sending.flush()
    channel.sending.consumed(1, 0.0)
    channel.sending.consumed(2, 0.0)
    channel.sending.consumed(0, 0.0)
    channel.sending.consumed(3, 0.0)
    assert channel.rows == [0, 1, 2, 3]
    assert channel.sending.is_drained


def test_credits_of_a_frame_come_back_together() -> None:
    channel = Channel(credits=2, rows=1)
    channel.add(1, 2, 3, 4)
    assert channel.frames == {0: [RowBatch([1]), RowBatch([2])]}
    channel.sending.consumed(0, 0.0)
    assert channel.frames[2] == [RowBatch([3]), RowBatch([4])]


def test_rows_with_and_without_timestamps_do_not_share_a_buffer(channel: Channel) -> None:
    channel.sending.add_rows(["a"], [1])
    channel.sending.add_rows(["b"], [2])
    channel.sending.add_rows(["c"], None)
    channel.sending.add_rows(["d"], [4])
    channel.sending.flush()
    channel.sending.consumed(0, 0.0)
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


def arrow(*numbers: int, stamps: bool = False) -> ArrowBatch:
    batch = pa.record_batch({"n": pa.array(numbers, pa.int64())})
    return ArrowBatch(batch, pa.array(numbers, pa.int64()) if stamps else None)


def test_rows_and_arrow_batches_keep_their_order_in_buffers_of_their_own() -> None:
    channel = Channel(credits=8, arrow_rows=100)
    channel.add("before")
    channel.sending.add_arrow(arrow(1, 2))
    channel.sending.add_arrow(arrow(3))
    channel.add("behind")
    channel.sending.flush()
    assert channel.sent == [RowBatch(["before"]), arrow(1, 2, 3), RowBatch(["behind"])]


def test_arrow_batches_wait_in_the_open_buffer_until_it_is_full_or_flushed() -> None:
    channel = Channel(credits=8, arrow_rows=4)
    channel.sending.add_arrow(arrow(1, 2))
    channel.sending.add_arrow(arrow(3))
    assert channel.frames == {}
    assert channel.sending.has_open_rows
    assert not channel.sending.is_drained
    channel.sending.add_arrow(arrow(4))
    assert channel.sent == [arrow(1, 2, 3, 4)]
    assert not channel.sending.has_open_rows
    channel.sending.add_arrow(arrow(5))
    channel.sending.flush()
    assert channel.sent == [arrow(1, 2, 3, 4), arrow(5)]


def test_an_idle_channel_sends_open_arrow_batches_and_an_event_goes_behind_them() -> None:
    channel = Channel(credits=8, arrow_rows=100)
    channel.sending.add_arrow(arrow(1))
    assert channel.sending.flush_if_idle(1.0) is None
    assert channel.sent == [arrow(1)]
    channel.sending.add_arrow(arrow(2))
    channel.sending.add_event(EndOfPartition())
    assert channel.sent == [arrow(1), arrow(2), EndOfPartition()]


def test_what_is_encoded_already_goes_behind_open_batches() -> None:
    channel = Channel(credits=8, arrow_rows=100)
    channel.sending.add_arrow(arrow(1))
    channel.sending.add_buffer(channel.codec.encode(RowBatch(["broadcast"])))
    assert channel.sent == [arrow(1), RowBatch(["broadcast"])]


def test_nothing_is_restored_behind_open_batches() -> None:
    channel = Channel(arrow_rows=100)
    channel.sending.add_arrow(arrow(1))
    with pytest.raises(ValueError, match="before anything is sent"):
        channel.sending.restore([])


def test_rows_of_a_buffer_follow_the_budget_of_bytes() -> None:
    channel = Channel(credits=100, rows=64, size=1000)
    for _ in range(8):
        channel.add(*["x" * 100] * 64)
    sizes = [len(batch.rows) for batch in channel.sent if isinstance(batch, RowBatch)]
    assert max(sizes) <= 10, "the first one, too"


def test_drained_means_that_everything_was_consumed(channel: Channel) -> None:
    assert channel.sending.is_drained
    channel.add(1)
    assert not channel.sending.is_drained
    channel.sending.flush()
    channel.sending.add_event(EndOfPartition())
    assert not channel.sending.is_drained
    channel.sending.consumed(0, 0.0)
    assert not channel.sending.is_drained
    channel.sending.consumed(1, 0.0)
    assert channel.sending.is_drained


def test_statistics_count_what_was_sent_and_what_waits(channel: Channel) -> None:
    for row in range(3):
        channel.add(row)
        channel.sending.flush()
    statistics = channel.sending.statistics()
    assert (statistics.outstanding, statistics.queued) == (2, 1)
    assert statistics.bytes > 0
    channel.sending.consumed(0, 0.0)
    channel.sending.consumed(1, 0.0)
    channel.sending.consumed(2, 0.0)
    statistics = channel.sending.statistics()
    assert (statistics.buffers, statistics.outstanding, statistics.queued) == (3, 0, 0)


def test_a_receiver_that_is_gone_is_not_waited_for(channel: Channel) -> None:
    channel.add(*range(20))
    channel.sending.give_up()
    assert channel.sending.is_drained
