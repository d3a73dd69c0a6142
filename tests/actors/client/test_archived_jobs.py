"""Jobs that have ended, read from their checkpoint storage where no cluster runs."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import cast

import pytest
import ray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from penstock import JobStatus, RescaleError, SavepointError
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.jobs import KnownJob, archived_job, archived_jobs, find_job, known_jobs
from penstock.actors.client.progress import ProgressText, card
from penstock.actors.command_line.views import jobs_table, status_view
from penstock.actors.shared.archive import report_from, save_to_storage
from penstock.actors.shared.job_report import JobReport, SubtaskInfo, Takeover
from penstock.actors.web.answers import (
    backpressure_of,
    checkpoints_of,
    dumps,
    exceptions_of,
    overview_of,
    watermarks_of,
)
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.errors import (
    ConfigurationError,
    DeploymentError,
    JobCancelledError,
    JobFailedError,
    StorageError,
)
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.io.storage import open_storage
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.job.job_state import JobState, RescaleRecord, Transition
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics

GRAPH = GraphInfo("words", (VertexInfo("lines", 2, 128, (OperatorInfo("lines", "source", "lines", 2),)),))
CHECKPOINT = CheckpointRecord(7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 1.0, 2, 2, 0.1, 5)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every attempt to join or start a cluster fail."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("a cluster is not needed")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "get_actor", refuse)


def leave_report(storage: Path, job_id: str, name: str, status: JobStatus, submitted_at: float = 1.0) -> None:
    failure = None
    if status is JobStatus.FAILED:
        failure = FailureRecord(1, 2.0, FailureCause("operator 'lines' broke", None, "Traceback ..."))
    report = JobReport(
        job_id,
        name,
        status,
        submitted_at,
        2.0,
        JobStatistics(status, attempt=1),
        GRAPH,
        failure,
        storage=str(storage),
        checkpoint_history=(CHECKPOINT,),
    )
    save_to_storage(open_storage(str(storage)), report)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A storage with the reports of three ended jobs, and the log of a job without a report."""
    leave_report(tmp_path, "words-2", "words", JobStatus.FAILED, 2.0)
    leave_report(tmp_path, "words-1", "words", JobStatus.FINISHED, 1.0)
    leave_report(tmp_path, "clicks-3", "clicks", JobStatus.CANCELLED, 3.0)
    open_storage(str(tmp_path)).put("running-4/log/1", b"")
    return tmp_path


def test_all_reports_of_a_storage_are_listed_oldest_job_first(storage: Path) -> None:
    assert [job.report.job_id for job in archived_jobs(storage)] == ["words-1", "words-2", "clicks-3"]
    assert [(each.report.job_id, each.state) for each in known_jobs(storage)] == [
        ("words-1", "finished"),
        ("words-2", "failed"),
        ("clicks-3", "cancelled"),
    ]


def test_one_report_is_read_by_its_job_id(storage: Path) -> None:
    found = archived_job(storage, "clicks-3")
    assert found is not None
    assert found.report.status is JobStatus.CANCELLED
    assert archived_job(storage, "running-4") is None


@pytest.mark.parametrize("text", ["clicks-3", "cli", "clicks"])
def test_an_archived_job_is_found_by_its_id_its_beginning_and_its_name(storage: Path, text: str) -> None:
    assert find_job(text, storage).job_id == "clicks-3"


def test_an_error_names_the_file_of_a_damaged_report(storage: Path) -> None:
    (storage / "words-1" / "status.json").write_text("half a rep")
    with pytest.raises(StorageError, match=r"words-1/status\.json is not a report of a job"):
        find_job("words-1", storage)


def test_a_misspelt_job_is_answered_with_the_nearest_and_all_that_are_known(storage: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_job("wrods-1", storage)
    message = str(caught.value)
    assert "no job 'wrods-1'; known jobs: words-1, words-2, clicks-3; did you mean 'words-1'?" in message
    assert str(storage) in message


def test_a_name_of_several_archived_jobs_is_not_guessed(storage: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"words-1 \(finished\), words-2 \(failed\)"):
        find_job("words", storage)


def test_a_storage_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a folder; check the path"):
        known_jobs(tmp_path / "nowhere")


@pytest.fixture
def finished(storage: Path) -> RayJobHandle:
    return find_job("words-1", storage)


def test_the_handle_of_an_archived_job_tells_what_its_report_says(finished: RayJobHandle) -> None:
    assert finished.name == "words"
    assert finished.status() is JobStatus.FINISHED
    assert finished.statistics().attempt == 1
    assert finished.wait(1.0).duration == 2.0
    assert "2 subtasks" in finished.describe()
    assert finished.processes() == ()
    assert [each.record for each in finished.checkpoints()] == [CHECKPOINT]
    assert pickle.loads(pickle.dumps(finished)).status() is JobStatus.FINISHED


def test_the_end_of_an_archived_job_is_raised_as_that_of_any_other(storage: Path) -> None:
    with pytest.raises(JobFailedError, match="operator 'lines' broke\nTraceback"):
        find_job("words-2", storage).wait()
    with pytest.raises(JobCancelledError, match="clicks-3 was cancelled"):
        find_job("clicks-3", storage).wait()


def test_nothing_can_be_asked_of_an_archived_job(finished: RayJobHandle) -> None:
    finished.cancel()
    assert finished.status() is JobStatus.FINISHED
    with pytest.raises(SavepointError, match="the job has ended: finished"):
        finished.savepoint()
    with pytest.raises(SavepointError, match="the job has ended: finished"):
        finished.stop()
    with pytest.raises(RescaleError, match="the job has ended: finished"):
        finished.rescale(lines=4)
    with pytest.raises(DeploymentError, match="known from its storage only"):
        finished.logs()


def unreadable_places(storage: Path) -> dict[str, str]:
    """Write reports that can't be read, each for another reason; return the expected message by job id."""
    good = (storage / "words-1" / "status.json").read_text()

    def leave(job_id: str, text: str) -> None:
        (storage / job_id).mkdir()
        (storage / job_id / "status.json").write_text(text)

    leave("cut-1", good[: len(good) // 2])
    leave("other-1", good)
    leave("list-1", "[]")
    leave("empty-1", "")
    leave("deep-1", "[" * 100_000)
    leave(
        "time-1",
        good.replace('"submitted_at": 1.0', '"submitted_at": "yesterday"').replace("words-1", "time-1"),
    )
    leave(
        "huge-1",
        good.replace('"submitted_at": 1.0', '"submitted_at": 1' + "0" * 400).replace("words-1", "huge-1"),
    )
    leave("nan-1", good.replace('"submitted_at": 1.0', '"submitted_at": NaN').replace("words-1", "nan-1"))
    (storage / "endless-1").mkdir()
    with open(storage / "endless-1" / "status.json", "wb") as endless:
        endless.truncate(1 << 40)
    (storage / "bytes-1").mkdir()
    (storage / "bytes-1" / "status.json").write_bytes(b"\xff\xfe\x00")
    for job_id in ("pipe-1", "socket-1", "folder-1", "link-1"):
        (storage / job_id).mkdir()
    os.mkfifo(storage / "pipe-1" / "status.json")
    with contextlib.chdir(storage / "socket-1"), socket.socket(socket.AF_UNIX) as bound:
        bound.bind("status.json")
    (storage / "folder-1" / "status.json").mkdir()
    (storage / "link-1" / "status.json").symlink_to(storage / "words-1" / "status.json")
    return {
        "cut-1": "is not a report of a job (JSONDecodeError",
        "other-1": "is the report of another job, 'words-1'",
        "list-1": "is not a report of a job",
        "empty-1": "is not a report of a job (JSONDecodeError",
        "deep-1": "is not a report of a job (RecursionError",
        "time-1": "submitted_at is 'yesterday', not a valid float",
        "huge-1": "not a valid float",
        "nan-1": "submitted_at is nan, not a valid float",
        "endless-1": "it has more than 67,108,864 bytes",
        "bytes-1": "is not a report of a job (UnicodeDecodeError",
        "pipe-1": "it is not a regular file",
        "socket-1": "it is not a regular file",
        "folder-1": "it is not a regular file",
        "link-1": "it is a symbolic link",
    }


def test_a_report_that_cannot_be_read_is_listed_with_its_reason_and_hides_no_other(storage: Path) -> None:
    expected = unreadable_places(storage)
    (storage / "lost+found").mkdir()
    archived = archived_jobs(storage)
    readable = [job.report.job_id for job in archived if not job.problem]
    assert readable == ["words-1", "words-2", "clicks-3"]
    said = {job.report.job_id: job.problem for job in archived if job.problem}
    assert said.keys() == expected.keys()
    assert {job_id: reason in said[job_id] for job_id, reason in expected.items()} == dict.fromkeys(
        expected, True
    )
    known = known_jobs(storage)
    assert {each.report.job_id for each in known if each.state == "unreadable"} == expected.keys()
    assert find_job("clicks", storage).job_id == "clicks-3"
    for job_id, reason in expected.items():
        with pytest.raises(StorageError) as raised:
            find_job(job_id, storage)
        assert reason in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a folder that another user can't read")
def test_a_folder_of_another_user_hides_no_job(storage: Path) -> None:
    for ours in storage.rglob("*"):
        ours.chmod(0o755 if ours.is_dir() else 0o644)
    (storage / "theirs-1").mkdir()
    (storage / "theirs-1" / "status.json").write_text("{}")
    (storage / "theirs-1").chmod(0o700)
    for path in storage.glob("*-[0-9]/**/*"):
        if not path.is_relative_to(storage / "theirs-1"):
            path.parent.chmod(0o755)
            path.chmod(0o644)
    for above in (storage, *storage.parents):
        if above.is_relative_to(tempfile.gettempdir()) and above != Path(tempfile.gettempdir()):
            above.chmod(above.stat().st_mode | 0o055)
    assert len(archived_jobs(storage)) == 4
    os.seteuid(65_534)
    try:
        theirs, *others = archived_jobs(storage)
    finally:
        os.seteuid(0)
    assert [job.problem for job in others] == ["", "", ""]
    assert (theirs.report.job_id, "Permission denied" in theirs.problem) == ("theirs-1", True)


JSON_VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_stands_in_a_report_the_list_of_jobs_can_be_shown(
    storage: Path, data: st.DataObject
) -> None:
    whole = json.loads((storage / "words-2" / "status.json").read_text())
    part = whole
    while True:
        key = data.draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            part[key] = data.draw(JSON_VALUES)
            break
        part = part[key]
    (storage / "drawn-1").mkdir(exist_ok=True)
    written = json.dumps(whole).replace('"words-2"', '"drawn-1"')
    (storage / "drawn-1" / "status.json").write_text(written)
    known = known_jobs(storage)
    assert {"words-1", "words-2", "clicks-3", "drawn-1"} == {each.report.job_id for each in known}
    Console(file=io.StringIO()).print(jobs_table(known))
    for each in known:
        dumps(overview_of(each))
        if not each.problem and each.is_archived:
            list(status_view(each.report))


def numbers_in(part: object, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths to all numbers of a report."""
    for key, each in part.items() if isinstance(part, dict) else enumerate(cast("list[object]", part)):
        if isinstance(each, dict | list):
            yield from numbers_in(each, (*way, key))
        elif type(each) in (int, float):
            yield (*way, key)


@pytest.mark.parametrize("number", [0, -1, 1e308, 10**400, 253_402_300_800], ids=str)
def test_no_number_in_a_report_keeps_it_from_being_shown(number: float) -> None:
    subtask = SubtaskId("lines", 0)
    counted = SubtaskStatistics(1, 2, 3, 4, 5.0, 6.0, 7, 8, current_watermark=5)
    statistics = JobStatistics(JobStatus.FAILED, attempt=1, last_checkpoint_id=7)
    failure = FailureRecord(1, 2.0, FailureCause("operator 'lines' broke", None, "Traceback ..."))
    report = JobReport(
        "words-1",
        "words",
        JobStatus.FAILED,
        1.0,
        2.0,
        statistics,
        GRAPH,
        failure,
        history=(Transition(JobState.CREATED, JobState.RUNNING, 1.0), Takeover(2.0)),
        failures=(failure,),
        subtasks=(SubtaskInfo(subtask, 1, SubtaskStatus.RUNNING, statistics=counted),),
        checkpoints=CoordinatorStatistics(latest_completed_at=1.0),
        checkpoint_history=(CHECKPOINT,),
        rescales=(RescaleRecord(1.0, 1, {"lines": 2}, {"lines": 3}, 2.0),),
        storage="/somewhere",
    )
    whole = report.to_dict()
    ways = list(numbers_in(json.loads(json.dumps(whole))))
    changes = [{way: number} for way in ways]
    for first, second in permutations(ways, 2):
        if first[:-1] == second[:-1]:  # a sum or a difference may be infinite
            changes += [{first: number, second: number}, {first: number, second: -number}]
    shown = 0
    for changed in changes:
        data = json.loads(json.dumps(whole))
        for way, value in changed.items():
            part = data
            for key in way[:-1]:
                part = part[key]
            part[way[-1]] = value
        try:
            known = KnownJob(report_from(data), "failed", False)
        except (TypeError, ValueError, OverflowError, KeyError):
            continue  # such a report is listed as unreadable
        shown += 1
        jobs_table([known])
        list(status_view(known.report))
        card(known.report, "failed")
        ProgressText().line(replace(known.report, status=JobStatus.RUNNING), 0.0)
        for answer in (
            overview_of(known),
            checkpoints_of(known.report, known.report.checkpoint_history),
            exceptions_of(known.report),
            *(each(known.report, GRAPH.vertices[0]) for each in (backpressure_of, watermarks_of)),
        ):
            json.loads(dumps(answer))
    assert shown > 10
