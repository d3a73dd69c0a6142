"""Records that the decision log claims, fences and finds again when an answer is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decision_log_setup import PATHS, SLOT, Flaky, begun, completed

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    CheckpointsDropped,
    JobEnded,
    LogCompacted,
    LogRecord,
    LogView,
    decode_record,
    encode_record,
)
from penstock.runtime.checkpoint.log.slots import Claimed, Fenced, OutcomeUnknownError
from penstock.runtime.config.restart import RestartMemory
from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.sealed_file import seal
from penstock.runtime.snapshot.storage import MemoryStorage


@pytest.fixture
def storage() -> Flaky:
    return Flaky()


@pytest.mark.parametrize(
    "record",
    [
        AttemptBegun(3, None, 1.5),
        AttemptBegun(3, 7, 1.5),
        completed(7, 3, subsumes=(5, 6)),
        replace(completed(7), kind=SnapshotKind.SYNC_SAVEPOINT, drained=True),
        CheckpointsDropped((1, 2), 3, 1.5),
        JobEnded("failed", "Zähler: boom", 3, 1.5),
        JobEnded("finished", None, 3, 1.5, "/saved/savepoint-j-1-1", drained=True),
        JobEnded("failed", "\udc80", 3, 1.5, failure={"message": "\udc80", "subtask": ["a", 0]}),
        LogCompacted(
            LogView(
                last_attempt=3,
                completed=(completed(7, 3), completed(8, 3)),
                highest_checkpoint_id=8,
                begun_slots=(0, 4),
                compacted_at=2,
            ),
            1.5,
        ),
    ],
)
def test_every_record_comes_back_as_it_was(record: LogRecord) -> None:
    assert decode_record(encode_record(record), "x") == record


@pytest.mark.parametrize("body", [["unknown", 1], ["begun", 1], [], None, ["completed", 1]])
def test_a_record_of_another_shape_is_damaged(body: object) -> None:
    with pytest.raises(CorruptSnapshotError, match="job/log/1 should be a record"):
        decode_record(seal(b"PENSTKLG", 1, body), "job/log/1")


def test_an_empty_log_says_nothing(storage: Flaky) -> None:
    assert DecisionLog(storage, PATHS).replay() == LogView()


def test_attempts_count_up_and_name_what_they_restore(storage: Flaky) -> None:
    log = begun(storage)
    log.complete(completed(4))
    assert DecisionLog(storage, PATHS).begin_attempt(2.0) == AttemptBegun(2, 4, 2.0)


def test_a_replay_finds_everything_that_was_claimed(storage: Flaky) -> None:
    log = begun(storage)
    for number in (1, 2, 3):
        assert log.complete(completed(number)) == Claimed(number)
    assert log.drop((1,), 6.0) == Claimed(4)
    view = DecisionLog(storage, PATHS).replay()
    assert [c.checkpoint_id for c in view.completed] == [2, 3]
    assert view == log.view
    assert (view.last_attempt, view.highest_checkpoint_id, view.next_slot) == (1, 3, 5)


def test_a_completion_lets_go_of_others_in_the_same_record(storage: Flaky) -> None:
    log = begun(storage)
    log.complete(completed(1))
    log.complete(completed(2, subsumes=(1,)))
    assert log.replay().completed == (completed(2),)


def test_completed_checkpoints_are_ordered_by_id_whatever_completed_first(storage: Flaky) -> None:
    log = begun(storage)
    log.complete(completed(2))
    log.complete(completed(1))
    newest = log.replay().newest
    assert newest is not None
    assert newest.checkpoint_id == 2


def test_an_older_attempt_is_fenced_for_good(storage: Flaky) -> None:
    old = begun(storage)
    new = begun(storage)
    assert old.complete(completed(1)) == Fenced(2)
    reads = storage.gets
    assert old.drop((1,), 1.0) == Fenced(2)
    assert old.end("failed", "x", 1.0) == Fenced(2)
    assert storage.gets == reads
    assert new.complete(completed(1, 2)) == Claimed(2)


def test_a_completion_that_got_in_first_is_restored_by_the_new_attempt(storage: Flaky) -> None:
    old = begun(storage)
    new = DecisionLog(storage, PATHS)
    storage.before_put = lambda: old.complete(completed(1)) and None
    assert new.begin_attempt(2.0) == AttemptBegun(2, 1, 2.0)


def test_nothing_begins_after_the_end(storage: Flaky) -> None:
    log = begun(storage)
    log.end("finished", None, 3.0)
    ended = JobEnded("finished", None, 1, 3.0)
    assert DecisionLog(storage, PATHS).begin_attempt(4.0) == ended
    assert log.begin_attempt(4.0) == ended
    assert log.complete(completed(1)) == Fenced(1)
    assert log.end("failed", None, 5.0) == Fenced(1)


def test_an_end_in_doubt_that_happened_is_found_when_it_is_said_again(storage: Flaky) -> None:
    log = begun(storage)
    storage.failing_puts = 3
    with pytest.raises(OutcomeUnknownError):
        log.end("finished", None, 3.0)
    ended = JobEnded("finished", None, 1, 3.0)
    MemoryStorage.put(storage, f"{SLOT}1", encode_record(ended), create=True)
    assert log.end("finished", None, 9.0) == Claimed(1)
    assert log.replay().ended == ended


def test_a_put_without_an_answer_that_happened_is_claimed(storage: Flaky) -> None:
    log = begun(storage)
    storage.failing_puts, storage.happens = 1, True
    assert log.complete(completed(1)) == Claimed(1)
    assert log.complete(completed(2)) == Claimed(2)
    assert storage.list("job/log/") == [f"{SLOT}{n}" for n in range(3)]


def test_a_put_that_never_happened_is_made_again(storage: Flaky) -> None:
    log = begun(storage)
    storage.failing_puts = 2
    assert log.complete(completed(1)) == Claimed(1)


def test_a_record_in_doubt_is_an_error_and_the_next_one_settles_it(storage: Flaky) -> None:
    log = begun(storage)
    storage.failing_puts = 3
    with pytest.raises(
        OutcomeUnknownError, match="it is unknown whether a record was written to memory:/job/log/"
    ):
        log.complete(completed(1))
    assert log.complete(completed(2)) == Claimed(1)


def test_a_record_in_doubt_that_happened_later_is_taken_in(storage: Flaky) -> None:
    log = begun(storage)
    storage.failing_puts = 3
    with pytest.raises(OutcomeUnknownError):
        log.complete(completed(1))
    MemoryStorage.put(storage, f"{SLOT}1", encode_record(completed(1)), create=True)
    assert log.complete(completed(2)) == Claimed(2)
    assert [c.checkpoint_id for c in log.view.completed] == [1, 2]
    assert log.complete(completed(1)) == Claimed(2)
    assert log.replay() == log.view


def test_an_attempt_whose_beginning_was_not_answered_begins_again_with_a_larger_number(
    storage: Flaky,
) -> None:
    storage.failing_puts, storage.happens = 1, True
    assert DecisionLog(storage, PATHS).begin_attempt(1.0) == AttemptBegun(2, None, 1.0)


def test_a_storage_that_does_not_answer_lets_no_attempt_begin(storage: Flaky) -> None:
    storage.failing_puts = 3
    log = DecisionLog(storage, PATHS)
    with pytest.raises(StorageError, match="no answer"):
        log.begin_attempt(1.0)
    assert log.begin_attempt(1.0) == AttemptBegun(1, None, 1.0)


def test_one_log_begins_one_attempt_after_the_other(storage: Flaky) -> None:
    log = begun(storage)
    assert log.begin_attempt(2.0) == AttemptBegun(2, None, 2.0)
    assert log.complete(completed(1, 2)) == Claimed(2)
    with pytest.raises(ValueError, match="a record of attempt 1 can't be written by attempt 2"):
        log.complete(completed(2, 1))


def test_nothing_is_decided_before_an_attempt_begins(storage: Flaky) -> None:
    with pytest.raises(RuntimeError, match="must begin"):
        DecisionLog(storage, PATHS).end("finished", None, 1.0)


def one_more(view: LogView, is_other: bool) -> RestartMemory:
    return RestartMemory(view.restarts.restarts + 1)


def test_a_take_over_whose_record_got_no_answer_counts_one_death(storage: Flaky) -> None:
    begun(storage)
    storage.failing_puts, storage.happens = 1, True
    successor = DecisionLog(storage, PATHS)

    record = successor.begin_attempt(2.0, count=one_more)

    assert isinstance(record, AttemptBegun)
    assert (record.attempt, record.restarts.restarts) == (3, 1)


def test_a_take_over_that_another_one_forestalls_counts_both_deaths(storage: Flaky) -> None:
    begun(storage)

    def forestall() -> None:
        DecisionLog(storage, PATHS).begin_attempt(2.0, count=one_more)

    storage.before_put = forestall

    record = DecisionLog(storage, PATHS).begin_attempt(2.0, count=one_more)

    assert isinstance(record, AttemptBegun)
    assert (record.attempt, record.restarts.restarts) == (3, 2)
