"""The receiving end of a channel: order, repetition, gaps and damaged input."""

from __future__ import annotations

import pytest

from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, EndOfPartition, StreamElement, Watermark
from penstock.runtime.testing.manual_time import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def channel(clock: ManualClock) -> InputChannel:
    return InputChannel(3, clock, "lines[1]")


def marks(*numbers: int) -> list[bytes]:
    return [encode_element(Watermark(number)) for number in numbers]


def drain(channel: InputChannel) -> list[tuple[int, StreamElement]]:
    return list(iter(channel.poll, None))


def test_frames_in_order_are_consumed_in_order_with_their_numbers(channel: InputChannel) -> None:
    channel.receive(0, marks(10, 11))
    channel.receive(2, marks(12))
    assert drain(channel) == [(0, Watermark(10)), (1, Watermark(11)), (2, Watermark(12))]
    assert channel.poll() is None
    assert (channel.consumed, channel.queued) == (3, 0)


def test_consumed_moves_only_when_an_element_is_polled(channel: InputChannel) -> None:
    channel.receive(0, marks(0, 1))
    assert channel.consumed == 0
    channel.poll()
    assert channel.consumed == 1


def test_frame_that_overtook_waits_for_the_one_before_it(channel: InputChannel) -> None:
    channel.receive(2, marks(2, 3))
    assert channel.poll() is None
    channel.receive(0, marks(0, 1))
    assert [number for number, _ in drain(channel)] == [0, 1, 2, 3]


def test_elements_that_overtook_are_counted_once(channel: InputChannel) -> None:
    channel.receive(2, marks(2, 3))
    channel.receive(2, marks(2, 3))
    channel.receive(5, marks(5))
    assert channel.reordered == 3
    channel.receive(0, marks(0, 1, 2))
    channel.receive(4, marks(4))
    channel.receive(6, marks(6))
    assert channel.reordered == 3
    assert [number for number, _ in drain(channel)] == [0, 1, 2, 3, 4, 5, 6]


def test_repeated_frame_is_dropped(channel: InputChannel) -> None:
    channel.receive(0, marks(0, 1))
    channel.receive(0, marks(0, 1))
    channel.receive(4, marks(4))
    channel.receive(4, marks(4))
    assert [number for number, _ in drain(channel)] == [0, 1]


def test_overlapping_frame_gives_only_what_is_new(channel: InputChannel) -> None:
    channel.receive(0, marks(0, 1, 2))
    channel.receive(1, marks(1, 2, 3, 4))
    assert [number for number, _ in drain(channel)] == [0, 1, 2, 3, 4]


def test_frame_repeated_after_the_end_of_the_channel_is_dropped(channel: InputChannel) -> None:
    last = [*marks(0), encode_element(EndOfPartition())]
    channel.receive(0, last)
    channel.receive(0, last)
    assert [number for number, _ in drain(channel)] == [0, 1]


def test_gap_is_known_since_its_first_later_element_came(channel: InputChannel, clock: ManualClock) -> None:
    assert channel.gap_since is None
    clock.advance(5)
    channel.receive(1, marks(1))
    clock.advance(5)
    channel.receive(2, marks(2))
    assert channel.gap_since == 5
    channel.receive(0, marks(0))
    assert channel.gap_since is None


def test_time_of_a_gap_begins_anew_when_an_earlier_gap_closes(
    channel: InputChannel, clock: ManualClock
) -> None:
    channel.receive(1, marks(1))
    channel.receive(3, marks(3))
    clock.advance(7)
    channel.receive(0, marks(0))
    assert channel.gap_since == 7
    assert channel.consumed + channel.queued == 2


def test_description_of_a_gap_names_channel_sender_number_and_what_waits(channel: InputChannel) -> None:
    channel.receive(0, marks(0))
    channel.receive(4, marks(4, 5))
    text = channel.describe_gap()
    assert text.startswith("channel 3 (from lines[1]): element 1 has not arrived")
    assert "later elements that wait for it: 2, starting at number 4" in text


def test_statistics_count_what_arrived_and_what_waits(channel: InputChannel) -> None:
    first, second = Buffer(b"abc", 3), Buffer(b"defgh", 5)
    channel.receive(0, [encode_element(first), encode_element(Watermark(1)), encode_element(second)])
    channel.receive(5, marks(5))
    channel.poll()
    assert channel.received_bytes == 8
    assert (channel.consumed, channel.queued, channel.early) == (1, 2, 1)


def test_unknown_kind_of_element_is_refused_with_channel_sender_and_number(channel: InputChannel) -> None:
    channel.receive(0, marks(0))
    with pytest.raises(
        StreamCorruptError, match=r"channel 3 \(from lines\[1\]\), element 2: .*unknown kind 200"
    ):
        channel.receive(1, [*marks(1), b"\xc8rest"])
    assert channel.consumed + channel.queued == 1


def test_element_after_the_end_is_refused(channel: InputChannel) -> None:
    channel.receive(0, [encode_element(EndOfPartition())])
    with pytest.raises(StreamCorruptError, match=r"element 1 \(Watermark\) comes after the channel's end"):
        channel.receive(1, marks(1))


def test_element_that_overtook_the_end_is_refused_when_the_end_arrives(channel: InputChannel) -> None:
    channel.receive(1, marks(1))
    with pytest.raises(StreamCorruptError, match="comes after the channel's end"):
        channel.receive(0, [encode_element(EndOfPartition())])


def test_negative_sequence_number_is_refused(channel: InputChannel) -> None:
    with pytest.raises(StreamCorruptError, match="impossible sequence number -1"):
        channel.receive(-1, marks(0))


def test_empty_frame_changes_nothing(channel: InputChannel) -> None:
    channel.receive(0, [])
    channel.receive(9, [])
    assert channel.poll() is None
    assert channel.gap_since is None
