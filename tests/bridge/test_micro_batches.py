"""Micro-batches in a receive buffer: staged, prepared, closed, abandoned and covered."""

from __future__ import annotations

import pytest
from buffer_frames import closed, data_of, frame

from penstock.bridge.frame_store import FrameStore
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import EpochStage, PushOutcome


@pytest.fixture
def buffer(files: FrameStore) -> ReceiveBuffer:
    opened = ReceiveBuffer(0, files, window=8)
    assert opened.begin(0, "run")
    return opened


@pytest.fixture
def staged(files: FrameStore) -> ReceiveBuffer:
    """For micro-batches."""
    return ReceiveBuffer(0, files, window=8, staged=True)


def test_a_micro_batch_can_be_read_when_it_is_closed(staged: ReceiveBuffer) -> None:
    assert staged.begin(5, "a")
    for number in range(9):
        staged.push(frame(0, number, epoch=5, run="a"))
    assert staged.has_room, "nobody could read it, so nobody may wait for it"
    assert data_of(staged) == []
    assert closed(staged, 5, "a", {0: (9, 9)}) is None
    assert len(data_of(staged)) == 9


def test_a_micro_batch_that_was_given_up_leaves_nothing(staged: ReceiveBuffer) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, b"of the first try", epoch=0, run="a"))
    assert staged.begin(0, "b")
    assert staged.push(frame(0, 1, epoch=0, run="a")) is PushOutcome.STALE
    assert closed(staged, 0, "a", {0: (1, 1)}) == "epoch 0 has been abandoned"
    assert staged.push(frame(0, 0, b"of the second", epoch=0, run="b")) is PushOutcome.ACCEPTED
    assert closed(staged, 0, "b", {0: (1, 1)}) is None
    assert data_of(staged) == [b"of the second"]
    assert (staged.statistics().frames, staged.statistics().rows) == (1, 1)


def test_a_closed_micro_batch_is_not_wanted_again(staged: ReceiveBuffer) -> None:
    staged.begin(3, "a")
    staged.push(frame(0, 0, epoch=3, run="a"))
    closed(staged, 3, "a", {0: (1, 1)})
    assert not staged.begin(3, "b")
    assert staged.push(frame(0, 0, b"again", epoch=3, run="b")) is PushOutcome.DUPLICATE
    assert closed(staged, 3, "b", {}) is None
    assert data_of(staged) == [b"0/0"]


def test_of_a_prepared_micro_batch_nothing_can_be_read_and_nothing_more_is_taken(
    staged: ReceiveBuffer,
) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, epoch=0, run="a"))
    assert staged.stage(0) is EpochStage.OPEN
    assert staged.close(0) == "epoch 0 has been abandoned", "it is not prepared"
    assert staged.prepare(0, "a", {0: (1, 1)}) is None
    assert staged.stage(0) is EpochStage.PREPARED
    assert staged.push(frame(0, 1, epoch=0, run="a")) is PushOutcome.SURPLUS
    assert data_of(staged) == []
    assert staged.close(0) is None
    assert staged.stage(0) is EpochStage.CLOSED
    assert data_of(staged) == [b"0/0"]
    assert staged.close(0) is None, "once more changes nothing"
    assert len(data_of(staged)) == 1


def test_a_prepared_micro_batch_can_still_be_given_up(staged: ReceiveBuffer) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, b"of the first try", epoch=0, run="a"))
    staged.prepare(0, "a", {0: (1, 1)})
    assert staged.begin(0, "b"), "no receive buffer has closed it"
    assert staged.stage(0) is EpochStage.OPEN
    staged.push(frame(0, 0, b"of the second", epoch=0, run="b"))
    assert closed(staged, 0, "b", {0: (1, 1)}) is None
    assert data_of(staged) == [b"of the second"]


def test_a_micro_batch_is_covered_when_all_of_it_is_confirmed(staged: ReceiveBuffer) -> None:
    staged.begin(0, "a")
    closed(staged, 0, "a", {})
    staged.confirm(0, epoch=-1)
    assert staged.epochs.covered == -1, "nothing came, and the snapshot does not know that it has ended"
    staged.confirm(0, epoch=0)
    assert staged.epochs.covered == 0
    staged.begin(1, "b")
    for number in range(2):
        staged.push(frame(0, number, epoch=1, run="b"))
    closed(staged, 1, "b", {0: (2, 2)})
    staged.read(0, 100)
    staged.confirm(1, epoch=0)
    assert staged.epochs.covered == 0
    staged.confirm(2, epoch=1)
    assert staged.epochs.covered == 1
    assert staged.statistics().held_bytes == 0


def test_a_reader_is_told_where_micro_batches_end(staged: ReceiveBuffer) -> None:
    staged.begin(0, "a")
    for number in range(2):
        staged.push(frame(0, number, epoch=0, run="a"))
    assert staged.read(0, 100).epoch == -1, "it is not closed"
    closed(staged, 0, "a", {0: (2, 2)})
    chunk = staged.read(0, 100)
    assert ([f.ends for f in chunk.frames], chunk.epoch) == ([None, 0], 0)
    assert staged.read(0, 1).epoch == -1, "its second frame is not among these"
    staged.begin(1, "b")
    closed(staged, 1, "b", {})
    assert staged.read(2, 100).epoch == 1, "one without rows ends, too"


def test_a_micro_batch_is_emitted_when_the_reader_has_emitted_all_of_it(staged: ReceiveBuffer) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, epoch=0, run="a"))
    closed(staged, 0, "a", {0: (1, 1)})
    staged.read(0, 100)
    assert staged.epochs.emitted < 0, "what was read may still wait in the reader"
    staged.epochs.emitted = 0
    assert staged.epochs.emitted >= 0
    staged.epochs.emitted = -1  # a reader was restored, and continues from before
    assert staged.epochs.emitted < 0
    staged.confirm(1, epoch=0)
    assert staged.epochs.emitted < 0, "its next snapshot does not know the end, whatever an older one knew"


def test_a_micro_batch_without_rows_is_emitted_when_the_reader_knows_that_it_has_ended(
    staged: ReceiveBuffer,
) -> None:
    staged.begin(0, "a")
    closed(staged, 0, "a", {})
    assert staged.epochs.emitted < 0
    assert staged.read(0, 100).epoch == 0, "the reader is told"
    staged.epochs.emitted = 0
    assert staged.epochs.emitted >= 0


def test_what_a_snapshot_of_another_job_covers_is_not_taken_again(staged: ReceiveBuffer) -> None:
    staged.epochs.resume(4)
    assert [staged.stage(epoch) for epoch in (3, 4, 5)] == [
        EpochStage.PAST,
        EpochStage.CLOSED,
        EpochStage.OPEN,
    ]
    assert staged.epochs.covered == 4
    assert not staged.begin(4, "a")
    assert staged.begin(5, "b")
    staged.push(frame(0, 0, epoch=5, run="b"))
    assert closed(staged, 5, "b", {0: (1, 1)}) is None
    assert [f.ends for f in staged.read(0, 100).frames] == [5]


@pytest.mark.parametrize("snapshot", [-1, 0, 4])
def test_no_micro_batch_after_a_snapshot_may_be_skipped(staged: ReceiveBuffer, snapshot: int) -> None:
    staged.epochs.resume(snapshot)
    stages = [staged.stage(snapshot + further) for further in (1, 2, 9)]
    assert stages == [EpochStage.OPEN, EpochStage.GAP, EpochStage.GAP]


def test_a_job_without_a_snapshot_may_begin_anywhere_and_leaves_nothing_out_from_there(
    staged: ReceiveBuffer,
) -> None:
    assert [staged.stage(epoch) for epoch in (0, 1)] == [EpochStage.OPEN, EpochStage.AHEAD]
    staged.begin(3, "a")
    assert staged.stage(3) is EpochStage.AHEAD, "its query may try again"
    staged.prepare(3, "a", {})
    assert staged.stage(3) is EpochStage.PREPARED
    assert staged.close(3) is None
    assert [staged.stage(epoch) for epoch in (2, 3, 4, 5)] == [
        EpochStage.PAST,
        EpochStage.CLOSED,
        EpochStage.OPEN,
        EpochStage.GAP,
    ]


def test_a_micro_batch_that_is_open_at_the_end_is_dropped(staged: ReceiveBuffer) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, epoch=0, run="a"))
    staged.finish()
    chunk = staged.read(0, 100)
    assert (list(chunk.frames), chunk.complete) == ([], True)
    assert not staged.begin(1, "b")
