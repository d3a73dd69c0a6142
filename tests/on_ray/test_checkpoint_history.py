"""The JobMaster dies: the history of checkpoints continues, with what each subtask measured."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from jobs.driving import (
    after_checkpoints,
    finish,
    kill_master,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.words import NEVER, paced_lines, word_count
from typer.testing import CliRunner

from penstock import JobStatus
from penstock.actors.command_line.app import app
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0
#: Rows are kept to the microsecond.
ROUNDING = 1e-6


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def by_id(job: RayJobHandle) -> dict[int, CheckpointDetails]:
    return {details.record.checkpoint_id: details for details in job.checkpoints()}


def counts(report: JobReport) -> tuple[int, int, int]:
    known = report.checkpoints
    assert known is not None
    assert report.statistics.completed_checkpoints == known.completed
    assert report.statistics.failed_checkpoints == known.failed
    return known.triggered, known.completed, known.failed


def after_takeover(job: RayJobHandle, attempt: int) -> JobReport:
    return wait_until(
        job,
        f"attempt {attempt} at work",
        lambda r: r.statistics.attempt == attempt and r.status is JobStatus.RUNNING,
    )


def assert_same(before: CheckpointDetails, after: CheckpointDetails) -> None:
    """The same but for rounding; how long metadata took to be written may be gone."""
    assert after.record.duration is not None
    assert before.record.duration is not None
    assert 0 < after.record.duration <= before.record.duration
    assert replace(after.record, duration=None) == replace(before.record, duration=None)
    assert len(before.subtasks) == 4
    assert after.subtasks.keys() == before.subtasks.keys()
    for subtask, measured in before.subtasks.items():
        assert astuple(after.subtasks[subtask]) == pytest.approx(astuple(measured), abs=ROUNDING)


@pytest.mark.long
def test_a_job_master_that_comes_back_tells_of_the_checkpoints_that_are_retained(tmp_path: Path) -> None:
    """Two savepoints, each with a checkpoint behind it; of these four the last three are retained."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, parallelism=2, every=600, retain=2))
    when_records_flow(job, "count", 500)
    elsewhere = job.savepoint(tmp_path / "saved")
    inside = job.savepoint()
    before, counted = by_id(job), counts(job.report())
    kinds = [before[n].record.kind for n in (1, 2, 3, 4)]
    assert kinds == [SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT] * 2
    assert counted == (4, 4, 0)

    kill_master(job)
    assert counts(after_takeover(job, 2)) == counted

    after = by_id(job)
    for checkpoint_id in (2, 3, 4):
        assert_same(before[checkpoint_id], after[checkpoint_id])
    told = json.loads(run("checkpoints", job.job_id, "--json"))
    assert [len(each["by_subtask"]) for each in told if each["checkpoint_id"] > 1] == [4, 4, 4]
    assert "by subtask, checkpoint 4" in run("checkpoints", job.job_id)
    for path, checkpoint_id in ((elsewhere, 1), (inside, 3)):
        seen = {(s.vertex, s.index): m for s, m in before[checkpoint_id].subtasks.items()}
        for row in json.loads(run("inspect", path, "--json"))["by_subtask"]:
            expected = seen.pop((row["vertex"], row["subtask"])).alignment_duration
            assert row["alignment_duration"] == pytest.approx(expected, abs=ROUNDING)
        assert not seen
        assert "by subtask, at the time of the snapshot" in run("inspect", path)

    job.savepoint()
    kill_master(job)
    assert counts(after_takeover(job, 3)) == (6, 6, 0)
    assert_same(before[4], by_id(job)[4])
    (tmp_path / "go").touch()
    assert finish(job).statistics.completed_checkpoints >= 6


def test_checkpoints_go_on_in_one_history_when_the_job_master_dies_in_their_midst(tmp_path: Path) -> None:
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, parallelism=2, every=0.5))
    after_checkpoints(job, 5)
    before = by_id(job)
    newest = max(n for n, each in before.items() if each.record.status is CheckpointStatus.COMPLETED)
    kill_master(job)

    report = after_takeover(job, 2)
    triggered, completed, failed = counts(report)
    assert completed >= newest
    assert triggered >= completed + failed
    after_checkpoints(job, completed + 2)

    history = job.checkpoints()
    order = [(each.record.attempt, each.record.checkpoint_id) for each in history]
    assert order == sorted(set(order)), "each once, in the order of their start"
    ended = [each for each in history if each.record.attempt == 1]
    assert {each.record.status for each in ended} <= {CheckpointStatus.COMPLETED, CheckpointStatus.FAILED}
    last = [each for each in ended if each.record.status is CheckpointStatus.COMPLETED][-1]
    assert last.record.checkpoint_id >= newest
    assert len(last.subtasks) == last.record.subtasks == 4
    (tmp_path / "go").touch()
    finish(job)
