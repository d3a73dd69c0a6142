"""A job that was only just submitted, whose id has the log of another job."""

from __future__ import annotations

import pytest

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun
from penstock.runtime.errors import JobIdTakenError, StorageError
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.snapshot.paths import SnapshotPaths

PATHS = SnapshotPaths("job")


def test_the_first_attempt_of_a_new_job_is_in_slot_0() -> None:
    storage = MemoryStorage()
    assert DecisionLog(storage, PATHS).begin_attempt(1.0, is_new=True) == AttemptBegun(1, None, 1.0)
    assert storage.list(PATHS.log) == [PATHS.log_slot(0)]


def test_a_new_job_is_refused_an_id_that_has_a_log_and_writes_nothing_there() -> None:
    storage = MemoryStorage()
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    with pytest.raises(JobIdTakenError, match=r"job id 'job' is taken: .*job/log/ holds 1 records"):
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
