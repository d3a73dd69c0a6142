"""The JobMaster is killed at the moments of a checkpoint that matter, and at exactly these.

In the middle of the checkpoint: a sink has pre-committed, no subtask has acknowledged. Beside its record in
the
log: the put was about to be made, or is done and no subtask knows. Between pre-commit and commit: a sink
knows the decision and has committed nothing.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from jobs.driving import PATIENCE, after_checkpoints, finish, submit, wait_until
from jobs.faults import DeadlySink
from jobs.mortal_master import (
    AFTER_END,
    AFTER_RECORD,
    BEFORE_RECORD,
    KillsMaster,
    WitnessedSink,
    commits,
    records_of_log,
)
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import FileSink, JobResult, JobStatus, SavepointError
from penstock.actors.shared.archive import load_from_storage
from penstock.actors.shared.job_report import Takeover
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.checkpoint.log.records import AttemptBegun, CheckpointCompleted
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.io.storage import open_location, open_storage

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


@pytest.mark.parametrize("at", [BEFORE_RECORD, AFTER_RECORD])
def test_a_job_master_killed_beside_the_record_of_a_checkpoint(tmp_path: Path, at: str) -> None:
    """Without the record the checkpoint has never been; with it the next attempt commits what it covers."""
    arm, deaths, journal = tmp_path / "arm", tmp_path / "deaths", tmp_path / "journal"
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(
        word_count(
            tmp_path,
            KillsMaster(source, at, str(arm), str(deaths)),
            sink=WitnessedSink(FileSink.json(tmp_path / "out"), str(journal)),
            sink_parallelism=2,
        )
    )
    before = after_checkpoints(job, 2)
    arm.touch()

    assert_deaths_and_exactly_once(job, before, tmp_path)

    (died_at,) = map(int, deaths.read_text().split())
    log = records_of_log(tmp_path / "checkpoints", job.job_id)
    second = next(r for r in log if isinstance(r, AttemptBegun) and r.attempt == 2)
    taken = [r.attempt for r in log if isinstance(r, CheckpointCompleted) and r.checkpoint_id == died_at]
    if at == AFTER_RECORD:
        assert (taken, second.restored_checkpoint) == ([1], died_at)
        assert (1, died_at) not in commits(journal), "somebody had been told: the kill came too late"
        assert (2, died_at) in commits(journal)
    else:
        assert (taken, second.restored_checkpoint) == ([], died_at - 1), "an id is never given twice"


@pytest.mark.parametrize("drain", [False, True])
def test_a_stop_is_answered_with_its_savepoint_when_the_job_master_dies_behind_the_end(
    tmp_path: Path, drain: bool
) -> None:
    arm, deaths = tmp_path / "arm", tmp_path / "deaths"
    source = KillsMaster(
        paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go"), AFTER_END, str(arm), str(deaths)
    )
    job = submit(word_count(tmp_path, source))
    after_checkpoints(job, 1)
    arm.touch()
    savepoint = job.stop(drain=drain, timeout=PATIENCE)
    assert deaths.read_text() == "finished\n", "nothing was killed: the test proves nothing"
    assert open_snapshot(savepoint, open_location).checkpoint.drained is drain
    report = job.report()
    assert (report.status, report.savepoint, report.drained) == (JobStatus.FINISHED, savepoint, drain)
    kept = load_from_storage(open_storage(str(tmp_path / "checkpoints")), job.job_id)
    assert (kept.savepoint, kept.drained) == (savepoint, drain)
    assert job.stop(drain=drain) == savepoint
    if not drain:
        with pytest.raises(SavepointError, match="was already stopped without a drain; its savepoint is"):
            job.stop(drain=True)


@pytest.mark.long  # `test_commit.py` kills JobMasters at commits each time
def test_job_masters_killed_by_a_sink_between_its_phases(tmp_path: Path) -> None:
    """The sink lives on; the other writer may never hear of the checkpoint from this JobMaster."""
    moments = ["after prepare", "before commit"]
    sink: FileSink | DeadlySink = FileSink.json(tmp_path / "out")
    for at in moments:
        marker, arm = tmp_path / f"killed {at}", tmp_path / f"arm {at}"
        sink = DeadlySink(sink, at, str(marker), str(arm), itself=False)
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, sink=sink, sink_parallelism=2))
    completed = 0
    for attempt, at in enumerate(moments, 1):
        before = after_checkpoints(job, completed + 2)
        assert before.statistics.attempt == attempt
        assert before.master is not None
        whole = tmp_path / "arming"
        whole.write_text(str(before.master.pid))
        whole.rename(tmp_path / f"arm {at}")
        again = wait_until(job, "the next attempt", lambda r, a=attempt: r.statistics.attempt > a)  # type: ignore[misc]
        completed = again.statistics.completed_checkpoints
        assert (tmp_path / f"killed {at}").exists(), "nothing was killed: the test proves nothing"

    assert_deaths_and_exactly_once(job, before, tmp_path, deaths=len(moments))


def assert_deaths_and_exactly_once(
    job: RayJobHandle, before: JobReport, tmp_path: Path, *, deaths: int = 1
) -> JobResult:
    """Wait for the last death and the end. Nothing is lost or doubled, no id was taken twice."""
    wait_until(job, "the last attempt", lambda r: r.statistics.attempt > deaths)
    (tmp_path / "go").touch()
    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert (result.statistics.restarts, result.statistics.attempt) == (deaths, deaths + 1)
    after = job.report()
    assert [type(entry) for entry in after.history].count(Takeover) == deaths
    assert after.master is None or after.master != before.master
    log = records_of_log(tmp_path / "checkpoints", job.job_id)
    assert [r.attempt for r in log if isinstance(r, AttemptBegun)] == list(range(1, deaths + 2))
    ids = [r.checkpoint_id for r in log if isinstance(r, CheckpointCompleted)]
    assert all(earlier < later for earlier, later in pairwise(ids)), f"ids taken twice: {ids}"
    return result
