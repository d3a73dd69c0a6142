"""Checkpoints by hand: their results, their errors, and a job that continues from one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from jobs.driving import (
    PATIENCE,
    eventually,
    finish,
    kill_subtask,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.held_records import HeldAtEachRecord
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, counted, environment, lines, paced_lines, wide_line, word_count

from penstock import (
    CheckpointError,
    CheckpointResult,
    FileSink,
    FixedDelay,
    GeneratorSource,
    JobStatus,
    JobTimeoutError,
    StreamEnvironment,
)
from penstock.cluster import RayJobHandle
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.io.storage import open_location
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.testing import kill_process

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 3_000, 3_000.0


def wide_count(tmp_path: Path) -> StreamEnvironment:
    """A word count with state that is too large for a checkpoint's metadata; takes no checkpoints itself."""
    env = environment(tmp_path, every=600, retain=9, keep_after="always")
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go", line=wide_line)
    counted(env.from_source("lines", source), FileSink.json(tmp_path / "out"))
    return env


def made_by(taken: CheckpointResult, job: RayJobHandle) -> set[int | None]:
    """The checkpoints that wrote the state of this one."""
    operators = open_snapshot(taken.path, open_location).checkpoint.operators.values()
    files = [file for operator in operators for file in operator.files()]
    return {SnapshotPaths(job.job_id).checkpoint_of(file.path) for file in files}


def test_a_checkpoint_by_hand_is_complete_when_the_call_returns_and_a_job_starts_from_it(
    tmp_path: Path,
) -> None:
    """Also right after a process was killed: the call waits until the job runs again."""
    job = submit(wide_count(tmp_path))
    when_records_flow(job, "count", 2_000)

    first = job.checkpoint()
    full = job.checkpoint(full=True)
    after = job.checkpoint()
    kill_subtask(job, "count")
    wait_until(job, "a restart", lambda r: r.status is not JobStatus.RUNNING or r.statistics.attempt > 1)
    last = job.checkpoint(timeout=PATIENCE)

    told = {each.record.checkpoint_id: each.record for each in job.checkpoints()}
    for taken in (first, full, after, last):
        record = told[taken.checkpoint_id]
        assert (taken.size, taken.written_bytes) == (record.size, record.written_bytes)
        assert taken.duration == record.duration
        assert taken.path.startswith(f"{tmp_path / 'checkpoints'}/{job.job_id}/chk-{taken.checkpoint_id}-")
    assert [taken.checkpoint_id for taken in (first, full, after)] == [1, 2, 3]
    assert made_by(full, job) == {2}
    assert made_by(after, job) <= {2, 3}
    assert 2 in made_by(after, job)
    assert job.statistics().restarts == 1
    job.cancel()
    with pytest.raises(CheckpointError, match=r"of job \S+: the job (is cancell|has ended: cancelled)"):
        job.checkpoint(timeout=PATIENCE)
    eventually("the end", lambda: job.status() is JobStatus.CANCELLED)
    (tmp_path / "go").touch()
    again = wide_count(tmp_path).submit(restore_from=last.path)
    assert isinstance(again, RayJobHandle)
    finish(again)
    assert_exactly_once(tmp_path / "out", [wide_line(i) for i in range(COUNT)])


def held_count(tmp_path: Path, opened: Path) -> RayJobHandle:
    """A word count whose records pass only while a file exists; takes no checkpoints itself."""
    env = environment(tmp_path, every=600)
    source = env.from_source("lines", GeneratorSource(lines(50).__getitem__, count=50, rate=200.0))
    counted(source.rebalance().map(HeldAtEachRecord(str(opened)), id="held"), FileSink.json(tmp_path / "out"))
    return submit(env)


@pytest.mark.long
def test_a_checkpoint_by_hand_that_comes_to_nothing_says_why(tmp_path: Path) -> None:
    """It is late, it gives way to the savepoint of a stop, the job is stopping, the job has ended."""
    opened = tmp_path / "open"
    job = held_count(tmp_path, opened)
    when_records_flow(job, "lines")
    with pytest.raises(JobTimeoutError, match=r"is not complete after 0.2 s; it continues: `penstock checkp"):
        job.checkpoint(timeout=0.2)
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(job.checkpoint)  # waits for its turn
        stopped = threads.submit(job.stop)
        wait_until(job, "a stop", lambda report: report.status is JobStatus.STOPPING)
        with pytest.raises(CheckpointError, match="the job is stopping"):
            job.checkpoint(full=True)
        with pytest.raises(CheckpointError, match=r"checkpointing was stopped|the job is stopping"):
            late.result(PATIENCE)
        opened.touch()
        saved = stopped.result(PATIENCE)
    assert [each.record.checkpoint_id for each in job.checkpoints()] == [1, 2]
    with pytest.raises(
        CheckpointError, match=f"no checkpoint of job {job.job_id}: the job has ended: finished"
    ):
        job.checkpoint()
    assert saved.endswith("savepoint-2-1")


@pytest.mark.long
def test_a_job_without_checkpoints_takes_none_by_hand(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE), every=None))
    when_records_flow(job, "count", 10)
    with pytest.raises(CheckpointError, match=r"it has no Checkpointing\(\.\.\.\)"):
        job.checkpoint()
    job.cancel()


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 2), *(pytest.param(seed, 5, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_kills_while_checkpoints_are_asked_for_cost_nothing(
    tmp_path: Path, seed: int, kills: int, record_property: Callable[[str, object], None]
) -> None:
    """Any process, the JobMaster too. Each request ends with a checkpoint, or with an error that says why."""
    chance = random.Random(seed)
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FixedDelay(attempts=10 * kills, delay=0.1)
    job = submit(word_count(tmp_path, source, every=600, sink_parallelism=1, restart=restart))
    when_records_flow(job, "count", 100)
    asked: list[Future[CheckpointResult]] = []
    with ThreadPoolExecutor(kills) as threads:
        for kill in range(kills):
            full = chance.random() < 0.5
            asked.append(threads.submit(job.checkpoint, full=full, timeout=PATIENCE))
            report = wait_until(
                job,
                "a job that runs",
                lambda r, kill=kill: r.status is JobStatus.RUNNING and r.statistics.attempt > kill,  # type: ignore[misc]
            )
            assert report.master is not None
            kill_process(chance.choice([*report.processes, report.master]))
            wait_until(job, "another attempt", lambda r, kill=kill: r.statistics.attempt > kill + 1)  # type: ignore[misc]
    why = [str(error) for each in asked if (error := each.exception()) is not None]
    record_property("shown", f"{kills} kills, {len(asked) - len(why)} checkpoints, errors: {why}")
    assert all(re.match(rf"no checkpoint of job {job.job_id}: ", text) for text in why)
    (tmp_path / "go").touch()

    result = finish(job)

    assert result.statistics.restarts >= kills
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
