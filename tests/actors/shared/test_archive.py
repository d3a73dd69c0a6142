"""Reports of ended jobs in their storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import JobStatus
from penstock.actors.shared.archive import load_from_storage, open_proven, save_to_storage
from penstock.actors.shared.job_report import (
    FORMAT,
    JobMasterProcess,
    JobReport,
    SubtaskInfo,
    SubtaskProcess,
)
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.errors import CorruptSnapshotError, JobIdTakenError, ObjectNotFoundError
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

IN = SubtaskId("in", 0)


def report(status: JobStatus) -> JobReport:
    subtask = SubtaskInfo(IN, 1, SubtaskStatus.RUNNING, SubtaskProcess(IN, 12, "node"))
    return JobReport(
        "j-1",
        "j",
        status,
        1.0,
        2.0,
        JobStatistics(status),
        subtasks=(subtask,),
        master=JobMasterProcess(8, "node"),
    )


def test_a_report_is_read_back_from_the_storage() -> None:
    storage = MemoryStorage()
    running = report(JobStatus.RUNNING)
    save_to_storage(storage, running)
    assert load_from_storage(storage, "j-1") == running


def test_the_report_of_an_ended_job_names_no_processes() -> None:
    storage = MemoryStorage()
    save_to_storage(storage, report(JobStatus.FINISHED))
    kept = load_from_storage(storage, "j-1")
    assert (kept.master, kept.processes) == (None, ())
    assert [each.subtask for each in kept.subtasks] == [IN]


def test_a_process_that_wakes_up_behind_its_successor_is_told_so_and_writes_nothing(tmp_path: Path) -> None:
    storage = open_proven(str(tmp_path), "j-1", is_new=True, submission="once")
    assert not isinstance(storage, Fenced)
    DecisionLog(storage, SnapshotPaths("j-1"), submission="once").begin_attempt(1.0)
    left = sorted(tmp_path.rglob("*"))
    assert open_proven(str(tmp_path), "j-1", is_new=True, submission="once") == Fenced(1)
    with pytest.raises(JobIdTakenError, match="job id 'j-1' is taken"):
        open_proven(str(tmp_path), "j-1", is_new=True, submission="again")
    assert sorted(tmp_path.rglob("*")) == left


def test_an_id_with_a_damaged_log_counts_as_taken(tmp_path: Path) -> None:
    storage = MemoryStorage()
    paths = SnapshotPaths("j-1")
    DecisionLog(storage, paths, submission="once").begin_attempt(1.0)
    damaged = tmp_path / paths.log_slot(0)
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(storage.get(paths.log_slot(0))[:-1] + b"!")
    with pytest.raises(JobIdTakenError):
        open_proven(str(tmp_path), "j-1", is_new=True, submission="once")


def test_a_job_without_a_report_is_not_found() -> None:
    with pytest.raises(ObjectNotFoundError):
        load_from_storage(MemoryStorage(), "j-1")


@pytest.mark.parametrize("data", [b"not json", b"[]", b"{}", b'{"format": 1}'])
def test_a_file_that_is_no_report_is_an_error_that_names_it(data: bytes) -> None:
    storage = MemoryStorage()
    storage.put("j-1/status.json", data)
    with pytest.raises(CorruptSnapshotError, match=r"j-1/status\.json is not a report of a job"):
        load_from_storage(storage, "j-1")


def test_a_report_of_another_format_is_refused_by_its_number() -> None:
    storage = MemoryStorage()
    newer = {**report(JobStatus.FINISHED).to_dict(), "format": FORMAT + 1}
    storage.put("j-1/status.json", json.dumps(newer).encode())
    expected = rf"has format {FORMAT + 1}; this version .* reads {FORMAT}"
    with pytest.raises(CorruptSnapshotError, match=expected):
        load_from_storage(storage, "j-1")
