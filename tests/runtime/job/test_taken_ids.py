"""A job that was only just submitted, whose id has a log: of another job, or of its own second JobMaster."""

from __future__ import annotations

import pytest

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    LogCompacted,
    LogView,
    decode_record,
    encode_record,
)
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.config.restart import NO_RESTARTS
from penstock.runtime.errors import JobIdTakenError, StorageError
from penstock.runtime.job.job_ledger import JobLedger, LostToOther
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

PATHS = SnapshotPaths("job")


def test_the_first_attempt_of_a_new_job_is_in_slot_0() -> None:
    storage = MemoryStorage()
    assert DecisionLog(storage, PATHS).begin_attempt(1.0, is_new=True) == AttemptBegun(1, None, 1.0)
    assert storage.list(PATHS.log) == [PATHS.log_slot(0)]


def test_a_new_job_is_refused_an_id_that_has_a_log_and_writes_nothing_there() -> None:
    storage = MemoryStorage()
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    with pytest.raises(JobIdTakenError, match=r"job id 'job' is taken: .*job/log/ holds the records"):
        DecisionLog(storage, PATHS).begin_attempt(2.0, is_new=True)
    assert len(storage.list("job/")) == 1


def test_a_new_job_is_refused_the_id_of_a_job_that_has_ended() -> None:
    storage = MemoryStorage()
    earlier = DecisionLog(storage, PATHS)
    earlier.begin_attempt(1.0)
    earlier.end("finished", None, 2.0)
    with pytest.raises(JobIdTakenError):
        DecisionLog(storage, PATHS).begin_attempt(3.0, is_new=True)


def test_of_two_new_jobs_of_one_id_one_is_refused() -> None:
    storage = MemoryStorage()
    first, second = DecisionLog(storage, PATHS), DecisionLog(storage, PATHS)
    put = storage.put

    def second_is_faster(path: str, data: bytes, *, create: bool = False) -> None:
        storage.put = put  # type: ignore[method-assign]
        second.begin_attempt(1.0, is_new=True)
        put(path, data, create=create)

    storage.put = second_is_faster  # type: ignore[method-assign]
    with pytest.raises(JobIdTakenError):
        first.begin_attempt(1.0, is_new=True)


def test_a_new_job_whose_first_record_got_no_answer_goes_on_behind_it() -> None:
    storage = MemoryStorage()
    put = storage.put

    def answers_nothing(path: str, data: bytes, *, create: bool = False) -> None:
        storage.put = put  # type: ignore[method-assign]
        put(path, data, create=create)
        raise StorageError("no answer")

    storage.put = answers_nothing  # type: ignore[method-assign]
    assert DecisionLog(storage, PATHS).begin_attempt(1.0, is_new=True) == AttemptBegun(2, None, 1.0)


# -- two JobMasters of one submission ------------------------------------------------------------------------


def begun_by_successor(storage: MemoryStorage) -> DecisionLog:
    """The log after the attempt of a JobMaster that has followed one that was frozen before its first."""
    successor = DecisionLog(storage, PATHS, writer="successor", submission="once", compact_every=2)
    assert isinstance(successor.begin_attempt(1.0), AttemptBegun)
    return successor


def test_the_first_job_master_that_sleeps_until_it_has_a_successor_is_fenced_and_writes_nothing() -> None:
    storage = MemoryStorage()
    begun_by_successor(storage)
    left = {path: storage.get(path) for path in storage.list("job/")}
    sleeper = DecisionLog(storage, PATHS, writer="sleeper", submission="once")
    assert sleeper.begin_attempt(2.0, is_new=True) == Fenced(1)
    assert {path: storage.get(path) for path in storage.list("job/")} == left


def test_it_is_fenced_when_the_job_has_ended_and_when_the_log_was_compacted() -> None:
    storage = MemoryStorage()
    successor = begun_by_successor(storage)
    for _ in range(3):
        successor.drop((), 2.0)
    assert successor.view.compacted_at is not None
    successor.end("finished", None, 3.0)
    sleeper = DecisionLog(storage, PATHS, submission="once")
    assert sleeper.begin_attempt(4.0, is_new=True) == Fenced(1)


def test_another_submission_is_refused_by_name_also_where_none_is_known() -> None:
    storage = MemoryStorage()
    begun_by_successor(storage)
    for submission in ("again", ""):
        with pytest.raises(JobIdTakenError, match="job id 'job' is taken"):
            DecisionLog(storage, PATHS, submission=submission).begin_attempt(2.0, is_new=True)
    old = MemoryStorage()
    DecisionLog(old, PATHS).begin_attempt(1.0)
    for submission in ("once", ""):
        with pytest.raises(JobIdTakenError):
            DecisionLog(old, PATHS, submission=submission).begin_attempt(2.0, is_new=True)


def test_a_job_master_that_comes_back_takes_the_job_over_as_ever() -> None:
    storage = MemoryStorage()
    begun_by_successor(storage)
    third = DecisionLog(storage, PATHS, submission="once").begin_attempt(2.0)
    assert third == AttemptBegun(2, None, 2.0, submission="once")


def test_the_sleeper_ends_no_job_either() -> None:
    storage = MemoryStorage()
    begun_by_successor(storage)
    sleeper = JobLedger("job", storage, None, is_new=True, submission="once")
    assert sleeper.begin_attempt(2.0, NO_RESTARTS) == LostToOther()
    assert sleeper.end(JobState.FAILED, "it could not begin", 3.0) == LostToOther()
    with pytest.raises(JobIdTakenError):
        JobLedger("job", storage, None, is_new=True, submission="again").end(JobState.CANCELLED, "", 3.0)
    assert DecisionLog(storage, PATHS).replay().ended is None


def test_records_hold_the_submission() -> None:
    begun = AttemptBegun(1, None, 1.0, writer="one", submission="once")
    compacted = LogCompacted(LogView(1, begun_slots=(0,), submission="once"), 1.0)
    for record in (begun, compacted):
        assert decode_record(encode_record(record), "a file") == record
