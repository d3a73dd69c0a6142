"""What an ended job leaves in its storage, and what version 0.1 has left there."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from penstock import JobStatus
from penstock.actors.command_line.views import status_view
from penstock.actors.shared.archive import load_from_storage, open_proven, save_to_storage
from penstock.actors.shared.failure_text import failure_text
from penstock.actors.shared.job_report import (
    JobMasterProcess,
    JobReport,
    SubtaskInfo,
    SubtaskProcess,
    Takeover,
)
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.checkpoint.log.decision_log import DecisionLog, Fenced
from penstock.runtime.errors import CorruptSnapshotError, JobIdTakenError, ObjectNotFoundError
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.job.job_state import JobState, Transition
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage

OLD = json.loads((Path(__file__).parent / "status_0_1.json").read_text())
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


def old_report(**changed: object) -> JobReport:
    storage = MemoryStorage()
    storage.put(f"{OLD['job_id']}/status.json", json.dumps({**OLD, **changed}).encode())
    return load_from_storage(storage, OLD["job_id"])


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


@pytest.mark.parametrize("data", [b"not json", b"[]", b"{}", b'{"format": 2}'])
def test_a_file_that_is_no_report_is_an_error_that_names_it(data: bytes) -> None:
    storage = MemoryStorage()
    storage.put("j-1/status.json", data)
    with pytest.raises(CorruptSnapshotError, match=r"j-1/status\.json is no report of a job"):
        load_from_storage(storage, "j-1")


def test_a_report_of_version_0_1_keeps_what_it_was() -> None:
    old = old_report()
    assert (old.job_id, old.name, old.status) == (OLD["job_id"], "words", JobStatus.FINISHED)
    assert (old.duration, old.storage, old.failure) == (OLD["duration"], "/data/checkpoints", None)
    assert (old.statistics.restarts, old.statistics.completed_checkpoints) == (3, 34)
    assert old.records_in == OLD["statistics"]["operators"]["lines"]["records_out"]
    assert [(v.id, v.parallelism, len(v.operators)) for v in old.graph.vertices] == [
        ("lines", 2, 2),
        ("count", 3, 2),
    ]
    assert [each.checkpoint_id for each in old.checkpoint_history] == [34, 35]
    assert JobReport.from_dict(json.loads(json.dumps(old.to_dict()))) == old


def test_the_history_of_version_0_1_becomes_records_with_their_day() -> None:
    history = old_report().history
    assert len(history) == len(OLD["history"])
    first, last = history[0], history[-1]
    assert isinstance(first, Transition)
    assert isinstance(last, Transition)
    assert (first.source, first.target) == (JobState.CREATED, JobState.DEPLOYING)
    submitted = datetime.fromtimestamp(OLD["submitted_at"], UTC)
    begun = datetime.fromtimestamp(first.at, UTC)
    assert (begun.date(), begun.strftime("%H:%M:%S.%f")[:-3]) == (submitted.date(), "21:58:09.256")
    assert 0 < last.at - OLD["submitted_at"] <= OLD["duration"] + 1
    assert [type(entry) for entry in history].count(Takeover) == 1


def test_a_history_of_version_0_1_that_goes_on_after_midnight_is_on_the_next_day() -> None:
    lines = ["23:59:59.000 created -> deploying", "00:00:01.500 deploying -> initialising"]
    late = datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC).timestamp()
    before, after = old_report(history=lines, submitted_at=late).transitions
    assert (before.at - late, after.at - late) == (1.0, 3.5)


def test_failures_of_version_0_1_become_records_with_their_traceback() -> None:
    [failure] = old_report().failures
    assert failure.root.message.startswith("operator 'pair' (subtask 1 of 2), defined at")
    assert failure.root.traceback.startswith("Traceback (most recent call last)")
    assert failure_text(failure.root) == OLD["failures"][0]
    [step] = [step for step in old_report().transitions if step.target is JobState.FAILING]
    assert failure.at == step.at


def test_a_job_of_version_0_1_that_failed_has_its_last_failure() -> None:
    failed = old_report(status="failed", failure=OLD["failures"][0])
    assert failed.failure == failed.failures[-1]
    begun = old_report(status="failed", failure="the storage is away", failures=[])
    assert begun.failure is not None
    assert failure_text(begun.failure.root) == "the storage is away"


def test_the_oldest_records_without_operators_and_checkpoints_are_read() -> None:
    storage = MemoryStorage()
    missing = ("operators", "checkpoints", "checkpoint_history")
    data = {name: value for name, value in OLD.items() if name not in missing}
    storage.put(f"{OLD['job_id']}/status.json", json.dumps(data).encode())
    old = load_from_storage(storage, OLD["job_id"])
    assert (old.operators, old.records_in, old.checkpoints) == ((), 0, None)


def test_a_report_of_version_0_1_is_shown_by_the_command_line() -> None:
    console = Console(width=240, file=io.StringIO(), record=True)
    for part in status_view(replace(old_report(), warnings=("take care",))):
        console.print(part)
    shown = console.export_text()
    for expected in (*OLD["history"][:2], "no luck with 300", "map(pair)", "34 completed, 1 failed"):
        assert expected in shown
    assert "another process took over" in shown
