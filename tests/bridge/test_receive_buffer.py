"""Frames that a receive buffer accepts, drops, refuses, gives out and releases."""

from __future__ import annotations

import re

import pytest
from buffer_frames import closed, data_of, frame
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.frame_store import FrameStore
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import NoLongerHeldError, PushOutcome, ReadFrame


@pytest.fixture
def buffer(files: FrameStore) -> ReceiveBuffer:
    opened = ReceiveBuffer(0, files, window=8)
    assert opened.begin(0, "run")
    return opened


def test_frames_come_out_in_the_order_in_which_they_were_accepted(buffer: ReceiveBuffer) -> None:
    for each in [frame(0, 0), frame(4, 0), frame(0, 1)]:
        assert buffer.push(each) is PushOutcome.ACCEPTED
    assert [f.partition for f in buffer.read(0, 1000).frames] == [0, 4, 0]
    assert data_of(buffer) == [b"0/0", b"4/0", b"0/1"]
    assert data_of(buffer, 1) == [b"4/0", b"0/1"]


def test_a_read_gives_at_least_one_frame_and_then_what_fits(buffer: ReceiveBuffer) -> None:
    for number in range(3):
        buffer.push(frame(0, number))
    assert data_of(buffer, 0, max_bytes=1) == [b"0/0"]
    assert data_of(buffer, 0, max_bytes=6) == [b"0/0", b"0/1"]


def test_a_frame_of_another_attempt_is_dropped_when_it_is_the_same(buffer: ReceiveBuffer) -> None:
    buffer.push(frame(0, 0, attempt=1))
    assert buffer.push(frame(0, 0, attempt=2)) is PushOutcome.DUPLICATE
    assert buffer.push(frame(0, 1, attempt=2)) is PushOutcome.ACCEPTED
    seen = buffer.statistics()
    assert (seen.frames, seen.duplicates, seen.attempts, seen.partitions) == (2, 1, 2, 1)


def test_a_frame_that_comes_again_with_other_rows_is_refused(buffer: ReceiveBuffer) -> None:
    buffer.push(frame(0, 0))
    assert buffer.push(frame(0, 0, b"other", attempt=2)) is PushOutcome.DIFFERENT
    assert data_of(buffer) == [b"0/0"]


def test_it_is_refused_even_when_the_first_one_was_let_go(buffer: ReceiveBuffer) -> None:
    buffer.push(frame(0, 0))
    buffer.read(0, 100)
    buffer.confirm(1, epoch=0)
    assert buffer.push(frame(0, 0, b"other", attempt=2)) is PushOutcome.DIFFERENT


def test_a_frame_whose_predecessor_is_missing_is_early(buffer: ReceiveBuffer) -> None:
    assert buffer.push(frame(0, 1)) is PushOutcome.EARLY
    buffer.push(frame(0, 0))
    assert buffer.push(frame(0, 1)) is PushOutcome.ACCEPTED


def test_room_ends_with_the_window_and_comes_back_by_reading(buffer: ReceiveBuffer) -> None:
    for number in range(2):
        buffer.push(frame(0, number))
    assert buffer.has_room
    buffer.push(frame(0, 2))
    assert not buffer.has_room
    buffer.read(0, max_bytes=3)
    assert buffer.has_room
    buffer.read(0, max_bytes=3)  # again, after a restore: counts once
    assert buffer.statistics().unread_bytes == 6


def test_what_is_read_stays_until_it_is_confirmed(buffer: ReceiveBuffer, files: FrameStore) -> None:
    for number in range(20):
        buffer.push(frame(0, number, b"123456789"))
    buffer.read(0, 1000)
    assert buffer.statistics().held_bytes == 180
    assert files.open_files > 5
    buffer.confirm(19, epoch=0)
    assert buffer.statistics().held_bytes == 9
    assert files.open_files <= 2
    assert data_of(buffer, 19) == [b"123456789"]
    released = "frame 18 was requested, but frames before 19 are released, and frame 20 has not arrived"
    with pytest.raises(NoLongerHeldError, match=released):
        buffer.read(18, 100)


def test_what_was_never_read_is_never_let_go(buffer: ReceiveBuffer) -> None:
    buffer.push(frame(0, 0))
    buffer.confirm(1, epoch=0)
    assert data_of(buffer) == [b"0/0"]


def test_it_is_complete_when_everything_that_spark_counted_is_there(buffer: ReceiveBuffer) -> None:
    buffer.push(frame(0, 0, rows=5))
    buffer.push(frame(2, 0, rows=7))
    assert not buffer.read(0, 100).complete
    assert closed(buffer, 0, "run", {0: (1, 5), 1: (0, 0), 2: (1, 7)}) is None
    assert not buffer.read(0, 100).complete
    buffer.finish()
    assert buffer.read(0, 100).complete
    assert buffer.push(frame(0, 1)) is PushOutcome.SURPLUS
    assert buffer.push(frame(0, 0, attempt=9)) is PushOutcome.DUPLICATE


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ({0: (2, 6)}, "partition 0 ended with 2 frame"),
        ({0: (1, 6)}, "1 of 5 row"),
        ({0: (1, 5), 1: (1, 1)}, "partition 1 ended with 1 frame"),
        ({}, "partition.s. .0. were transferred, but Spark has not counted them"),
    ],
)
def test_it_is_not_complete_when_the_counts_differ(
    buffer: ReceiveBuffer, expected: dict, problem: str
) -> None:
    buffer.push(frame(0, 0, rows=5))
    found = closed(buffer, 0, "run", expected)
    assert found is not None
    assert re.search(problem, found)
    assert buffer.statistics().epochs == 0


def test_the_first_failure_counts_and_none_after_the_end(buffer: ReceiveBuffer) -> None:
    buffer.fail("first")
    buffer.fail("second")
    assert buffer.statistics().failure == "first"


def test_nothing_fails_after_it_is_complete(buffer: ReceiveBuffer) -> None:
    buffer.finish()
    buffer.fail("too late")
    assert buffer.failure is None


@given(
    frames=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    data=st.data(),
)
def test_whatever_attempts_do_every_frame_comes_out_once_and_in_its_partitions_order(
    frames: list[int], data: st.DataObject
) -> None:
    """Attempts push prefixes, in any interleaving; readers read, restore and confirm in between."""
    files = FrameStore(memory=data.draw(st.sampled_from([0, 5, 20])), file_size=8)
    buffer = ReceiveBuffer(0, files, window=1 << 30)
    buffer.begin(0, "run")
    taken: list[ReadFrame] = []
    confirmed = 0
    pushers = {(p, a): 0 for p in range(len(frames)) for a in range(3)}
    for _ in range(data.draw(st.integers(5, 60))):
        action = data.draw(st.sampled_from(["push", "push", "push", "read", "confirm", "restore"]))
        if action == "push":
            partition, attempt = data.draw(st.sampled_from(sorted(pushers)))
            number = pushers[partition, attempt]
            if number < frames[partition]:
                outcome = buffer.push(frame(partition, number, attempt=attempt))
                assert outcome in (PushOutcome.ACCEPTED, PushOutcome.DUPLICATE)
                pushers[partition, attempt] += 1
        elif action == "read":
            taken += buffer.read(len(taken), data.draw(st.integers(1, 20))).frames
        elif action == "confirm":
            confirmed = data.draw(st.integers(confirmed, len(taken)))
            buffer.confirm(confirmed, epoch=0)
        else:
            del taken[data.draw(st.integers(confirmed, len(taken))) :]
    for partition, count in enumerate(frames):
        for number in range(count):
            buffer.push(frame(partition, number, attempt=9))
    assert closed(buffer, 0, "run", {p: (n, n) for p, n in enumerate(frames)}) is None
    buffer.finish()
    while not (chunk := buffer.read(len(taken), 7)).complete:
        taken += chunk.frames
    taken += chunk.frames
    files.close()
    for partition, count in enumerate(frames):
        mine = [bytes(f.data) for f in taken if f.partition == partition]
        assert mine == [f"{partition}/{n}".encode() for n in range(count)]
    assert len(taken) == sum(frames)
