"""What a depot accepts, drops, refuses, gives out and lets go."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.depot import Depot
from penstock.bridge.depot_messages import EpochStage, Frame, NoLongerHeldError, PushOutcome, ReadFrame
from penstock.bridge.frame_files import FrameFiles


def frame(
    partition: int,
    number: int,
    data: bytes | None = None,
    attempt: int = 0,
    rows: int = 1,
    epoch: int = 0,
    run: str = "run",
) -> Frame:
    return Frame(epoch, run, partition, attempt, number, rows, data or f"{partition}/{number}".encode())


def data_of(depot: Depot, position: int = 0, max_bytes: int = 1_000_000) -> list[bytes]:
    return [bytes(frame.data) for frame in depot.read(position, max_bytes).frames]


def closed(depot: Depot, epoch: int, run: str, expected: dict[int, tuple[int, int]]) -> str | None:
    """What does not fit, or `None` and the epoch is closed."""
    problem = depot.prepare(epoch, run, expected)
    return depot.close(epoch) if problem is None else problem


@pytest.fixture
def files() -> Iterator[FrameFiles]:
    opened = FrameFiles(file_size=20)
    yield opened
    opened.close()


@pytest.fixture
def depot(files: FrameFiles) -> Depot:
    opened = Depot(0, files, window=8)
    assert opened.begin(0, "run")
    return opened


@pytest.fixture
def staged(files: FrameFiles) -> Depot:
    """For micro-batches."""
    return Depot(0, files, window=8, staged=True)


def test_frames_come_out_in_the_order_in_which_they_were_accepted(depot: Depot) -> None:
    for each in [frame(0, 0), frame(4, 0), frame(0, 1)]:
        assert depot.push(each) is PushOutcome.ACCEPTED
    assert [f.partition for f in depot.read(0, 1000).frames] == [0, 4, 0]
    assert data_of(depot) == [b"0/0", b"4/0", b"0/1"]
    assert data_of(depot, 1) == [b"4/0", b"0/1"]


def test_a_read_gives_at_least_one_frame_and_then_what_fits(depot: Depot) -> None:
    for number in range(3):
        depot.push(frame(0, number))
    assert data_of(depot, 0, max_bytes=1) == [b"0/0"]
    assert data_of(depot, 0, max_bytes=6) == [b"0/0", b"0/1"]


def test_a_frame_of_another_attempt_is_dropped_when_it_is_the_same(depot: Depot) -> None:
    depot.push(frame(0, 0, attempt=1))
    assert depot.push(frame(0, 0, attempt=2)) is PushOutcome.DUPLICATE
    assert depot.push(frame(0, 1, attempt=2)) is PushOutcome.ACCEPTED
    seen = depot.statistics()
    assert (seen.frames, seen.duplicates, seen.attempts, seen.partitions) == (2, 1, 2, 1)


def test_a_frame_that_comes_again_with_other_rows_is_refused(depot: Depot) -> None:
    depot.push(frame(0, 0))
    assert depot.push(frame(0, 0, b"other", attempt=2)) is PushOutcome.DIFFERENT
    assert data_of(depot) == [b"0/0"]


def test_it_is_refused_even_when_the_first_one_was_let_go(depot: Depot) -> None:
    depot.push(frame(0, 0))
    depot.read(0, 100)
    depot.confirm(1)
    assert depot.push(frame(0, 0, b"other", attempt=2)) is PushOutcome.DIFFERENT


def test_a_frame_whose_predecessor_is_missing_is_early(depot: Depot) -> None:
    assert depot.push(frame(0, 1)) is PushOutcome.EARLY
    depot.push(frame(0, 0))
    assert depot.push(frame(0, 1)) is PushOutcome.ACCEPTED


def test_room_ends_with_the_window_and_comes_back_by_reading(depot: Depot) -> None:
    for number in range(2):
        depot.push(frame(0, number))
    assert depot.has_room
    depot.push(frame(0, 2))
    assert not depot.has_room
    depot.read(0, max_bytes=3)
    assert depot.has_room
    depot.read(0, max_bytes=3)  # again, after a restore: counts once
    assert depot.statistics().unread_bytes == 6


def test_what_is_read_stays_until_it_is_confirmed(depot: Depot, files: FrameFiles) -> None:
    for number in range(20):
        depot.push(frame(0, number, b"123456789"))
    depot.read(0, 1000)
    assert depot.statistics().held_bytes == 180
    assert files.open_files > 5
    depot.confirm(19)
    assert depot.statistics().held_bytes == 9
    assert files.open_files <= 2
    assert data_of(depot, 19) == [b"123456789"]
    with pytest.raises(NoLongerHeldError, match="frame 18 was asked for, and frames 19 to 20 are held"):
        depot.read(18, 100)


def test_what_was_never_read_is_never_let_go(depot: Depot) -> None:
    depot.push(frame(0, 0))
    depot.confirm(1)
    assert data_of(depot) == [b"0/0"]


def test_it_is_complete_when_everything_that_spark_counted_is_there(depot: Depot) -> None:
    depot.push(frame(0, 0, rows=5))
    depot.push(frame(2, 0, rows=7))
    assert not depot.read(0, 100).complete
    assert closed(depot, 0, "run", {0: (1, 5), 1: (0, 0), 2: (1, 7)}) is None
    assert not depot.read(0, 100).complete
    depot.finish()
    assert depot.read(0, 100).complete
    assert depot.push(frame(0, 1)) is PushOutcome.SURPLUS
    assert depot.push(frame(0, 0, attempt=9)) is PushOutcome.DUPLICATE


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ({0: (2, 6)}, "partition 0 ended with 2 frame"),
        ({0: (1, 6)}, "1 of 5 row"),
        ({0: (1, 5), 1: (1, 1)}, "partition 1 ended with 1 frame"),
        ({}, "partition.s. .0. came that Spark does not know of"),
    ],
)
def test_it_is_not_complete_when_the_counts_differ(depot: Depot, expected: dict, problem: str) -> None:
    depot.push(frame(0, 0, rows=5))
    found = closed(depot, 0, "run", expected)
    assert found is not None
    assert re.search(problem, found)
    assert depot.statistics().epochs == 0


def test_the_first_failure_counts_and_none_after_the_end(depot: Depot) -> None:
    depot.fail("first")
    depot.fail("second")
    assert depot.statistics().failure == "first"


def test_nothing_fails_after_it_is_complete(depot: Depot) -> None:
    depot.finish()
    depot.fail("too late")
    assert depot.failure is None


def test_a_micro_batch_can_be_read_when_it_is_closed(staged: Depot) -> None:
    assert staged.begin(5, "a")
    for number in range(9):
        staged.push(frame(0, number, epoch=5, run="a"))
    assert staged.has_room, "nobody could read it, so nobody may wait for it"
    assert data_of(staged) == []
    assert closed(staged, 5, "a", {0: (9, 9)}) is None
    assert len(data_of(staged)) == 9


def test_a_micro_batch_that_was_given_up_leaves_nothing(staged: Depot) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, b"of the first try", epoch=0, run="a"))
    assert staged.begin(0, "b")
    assert staged.push(frame(0, 1, epoch=0, run="a")) is PushOutcome.STALE
    assert closed(staged, 0, "a", {0: (1, 1)}) == "epoch 0 was given up meanwhile"
    assert staged.push(frame(0, 0, b"of the second", epoch=0, run="b")) is PushOutcome.ACCEPTED
    assert closed(staged, 0, "b", {0: (1, 1)}) is None
    assert data_of(staged) == [b"of the second"]
    assert (staged.statistics().frames, staged.statistics().rows) == (1, 1)


def test_a_closed_micro_batch_is_not_wanted_again(staged: Depot) -> None:
    staged.begin(3, "a")
    staged.push(frame(0, 0, epoch=3, run="a"))
    closed(staged, 3, "a", {0: (1, 1)})
    assert not staged.begin(3, "b")
    assert staged.push(frame(0, 0, b"again", epoch=3, run="b")) is PushOutcome.DUPLICATE
    assert closed(staged, 3, "b", {}) is None
    assert data_of(staged) == [b"0/0"]


def test_of_a_prepared_micro_batch_nothing_can_be_read_and_nothing_more_is_taken(staged: Depot) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, epoch=0, run="a"))
    assert staged.stage(0) is EpochStage.OPEN
    assert staged.close(0) == "epoch 0 was given up meanwhile", "it is not prepared"
    assert staged.prepare(0, "a", {0: (1, 1)}) is None
    assert staged.stage(0) is EpochStage.PREPARED
    assert staged.push(frame(0, 1, epoch=0, run="a")) is PushOutcome.SURPLUS
    assert data_of(staged) == []
    assert staged.close(0) is None
    assert staged.stage(0) is EpochStage.CLOSED
    assert data_of(staged) == [b"0/0"]
    assert staged.close(0) is None, "once more changes nothing"
    assert len(data_of(staged)) == 1


def test_a_prepared_micro_batch_can_still_be_given_up(staged: Depot) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, b"of the first try", epoch=0, run="a"))
    staged.prepare(0, "a", {0: (1, 1)})
    assert staged.begin(0, "b"), "no depot has closed it"
    assert staged.stage(0) is EpochStage.OPEN
    staged.push(frame(0, 0, b"of the second", epoch=0, run="b"))
    assert closed(staged, 0, "b", {0: (1, 1)}) is None
    assert data_of(staged) == [b"of the second"]


def test_a_micro_batch_is_covered_when_all_of_it_is_confirmed(staged: Depot) -> None:
    staged.begin(0, "a")
    closed(staged, 0, "a", {})
    assert staged.epochs.covered == 0, "nothing came, so nothing is missing"
    staged.begin(1, "b")
    for number in range(2):
        staged.push(frame(0, number, epoch=1, run="b"))
    closed(staged, 1, "b", {0: (2, 2)})
    staged.read(0, 100)
    staged.confirm(1)
    assert staged.epochs.covered == 0
    staged.confirm(2)
    assert staged.epochs.covered == 1
    assert staged.statistics().held_bytes == 0


def test_a_reader_is_told_where_micro_batches_end(staged: Depot) -> None:
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


def test_a_micro_batch_is_passed_when_the_reader_has_given_all_of_it_on(staged: Depot) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, epoch=0, run="a"))
    closed(staged, 0, "a", {0: (1, 1)})
    staged.read(0, 100)
    assert not staged.epochs.is_passed(0), "what was read may still wait in the reader"
    staged.epochs.passed = 0
    assert staged.epochs.is_passed(0)
    staged.epochs.passed = -1  # a reader was restored, and goes on from before
    assert not staged.epochs.is_passed(0)
    staged.confirm(1)
    assert staged.epochs.is_passed(0), "covered is more than passed"


def test_what_a_snapshot_of_another_job_covers_is_not_taken_again(staged: Depot) -> None:
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


def test_a_micro_batch_that_is_open_at_the_end_is_dropped(staged: Depot) -> None:
    staged.begin(0, "a")
    staged.push(frame(0, 0, epoch=0, run="a"))
    staged.finish()
    chunk = staged.read(0, 100)
    assert (list(chunk.frames), chunk.complete) == ([], True)
    assert not staged.begin(1, "b")


@given(
    frames=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    data=st.data(),
)
def test_whatever_attempts_do_every_frame_comes_out_once_and_in_its_partitions_order(
    frames: list[int], data: st.DataObject
) -> None:
    """Attempts push prefixes, in any interleaving; readers read, restore and confirm in between."""
    files = FrameFiles(file_size=8)
    depot = Depot(0, files, window=1 << 30)
    depot.begin(0, "run")
    taken: list[ReadFrame] = []
    confirmed = 0
    pushers = {(p, a): 0 for p in range(len(frames)) for a in range(3)}
    for _ in range(data.draw(st.integers(5, 60))):
        action = data.draw(st.sampled_from(["push", "push", "push", "read", "confirm", "restore"]))
        if action == "push":
            partition, attempt = data.draw(st.sampled_from(sorted(pushers)))
            number = pushers[partition, attempt]
            if number < frames[partition]:
                outcome = depot.push(frame(partition, number, attempt=attempt))
                assert outcome in (PushOutcome.ACCEPTED, PushOutcome.DUPLICATE)
                pushers[partition, attempt] += 1
        elif action == "read":
            taken += depot.read(len(taken), data.draw(st.integers(1, 20))).frames
        elif action == "confirm":
            confirmed = data.draw(st.integers(confirmed, len(taken)))
            depot.confirm(confirmed)
        else:
            del taken[data.draw(st.integers(confirmed, len(taken))) :]
    for partition, count in enumerate(frames):
        for number in range(count):
            depot.push(frame(partition, number, attempt=9))
    assert closed(depot, 0, "run", {p: (n, n) for p, n in enumerate(frames)}) is None
    depot.finish()
    while not (chunk := depot.read(len(taken), 7)).complete:
        taken += chunk.frames
    taken += chunk.frames
    files.close()
    for partition, count in enumerate(frames):
        mine = [bytes(f.data) for f in taken if f.partition == partition]
        assert mine == [f"{partition}/{n}".encode() for n in range(count)]
    assert len(taken) == sum(frames)
