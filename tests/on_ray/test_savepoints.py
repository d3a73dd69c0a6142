"""Savepoints, stops, starts and rescaling of real jobs: each leaves every result exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    assert_no_subtasks,
    finish,
    kill_master,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.faults import DeadlySink
from jobs.oracle import assert_exactly_once, committed_updates, expected_updates, hidden_files
from jobs.windowed import add_windows, committed_windows, expected_windows, numbers_in
from jobs.words import (
    NEVER,
    LastLine,
    counted,
    environment,
    last_word,
    lines,
    paced_lines,
    word_count,
)

from penstock import FileSink, JobFailedError, JobStatus, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.connectors import Source
from penstock.runtime.errors import RescaleError, SavepointError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus
from penstock.runtime.snapshot.ids import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


def held(tmp_path: Path, parallelism: int = 2, **options: object) -> StreamEnvironment:
    """A word count that does not end before the file `go` is there."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    return word_count(tmp_path, source, parallelism=parallelism, **options)


def with_windows(tmp_path: Path, source: Source[str], parallelism: int) -> StreamEnvironment:
    """A word count, and beside it numbers in windows of event time."""
    env = environment(tmp_path, parallelism=parallelism)
    counted(env.from_source("lines", source), FileSink.json(tmp_path / "out"))
    add_windows(env, tmp_path / "windows", COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    return env


def resume(env: StreamEnvironment, path: str | Path, *, allow: bool = False) -> RayJobHandle:
    job = env.submit(restore_from=str(path), allow_non_restored_state=allow)
    assert isinstance(job, RayJobHandle)
    return job


@pytest.mark.parametrize(("old", "new", "drain"), [(1, 2, False), (2, 1, True)])
def test_a_job_goes_on_from_the_savepoint_that_another_was_stopped_with(
    tmp_path: Path, old: int, new: int, drain: bool
) -> None:
    """At another parallelism, from a folder that was moved. Open windows come out with drain only."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(with_windows(tmp_path, source, old))
    when_records_flow(job, "count", 500)
    when_records_flow(job, "windows", 500)
    after_checkpoints(job, 1)

    path = job.stop(tmp_path / "saved", drain=drain)

    assert (job.status(), job.report().savepoint) == (JobStatus.FINISHED, path)
    assert_no_subtasks(job)
    whole, stopped = expected_windows(COUNT), committed_windows(tmp_path / "windows")
    assert (set(stopped) <= set(whole)) is not drain
    assert len(stopped) < len(whole)
    assert hidden_files(tmp_path / "out") == []  # all that it covers is committed
    assert not expected_updates(lines(COUNT)) <= committed_updates(tmp_path / "out")
    assert job.stop(tmp_path / "saved") == path  # it has ended: it tells what it was stopped with
    moved = Path(path).rename(tmp_path / "elsewhere")
    (tmp_path / "go").touch()
    result = finish(resume(with_windows(tmp_path, paced_lines(COUNT, RATE), new), moved))
    assert (job.report().statistics.restarts, result.statistics.restarts) == (0, 0)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    windows = committed_windows(tmp_path / "windows")
    assert numbers_in(windows) == list(range(COUNT))
    assert (sorted(windows) == whole) is not drain


def test_a_savepoint_is_taken_while_the_job_goes_on(tmp_path: Path) -> None:
    """A second job from it counts on from there, whatever the first one did since."""
    job = submit(held(tmp_path))
    when_records_flow(job, "count", 500)

    path = job.savepoint()

    assert job.status() is JobStatus.RUNNING
    kinds = [each.record.kind for each in job.checkpoints()]
    assert kinds.index(SnapshotKind.SAVEPOINT) < len(kinds) - 1  # a checkpoint follows at once
    for each in job.checkpoints():
        if each.record.status is CheckpointStatus.COMPLETED:
            assert len(each.subtasks) == each.record.subtasks == 4
            assert all(m.full_bytes > 0 for m in each.subtasks.values())
    (tmp_path / "go").touch()
    assert finish(job).statistics.restarts == 0
    assert_exactly_once(tmp_path / "out", lines(COUNT))

    env = environment(tmp_path, parallelism=1)
    stream = env.from_source("lines", paced_lines(COUNT, RATE))
    counted(stream, FileSink.json(tmp_path / "again"), sink_id="elsewhere")
    second = resume(env, path, allow=True)
    assert finish(second).statistics.restarts == 0
    assert "state of 'updates' is left out: the job has no such operators" in second.report().warnings
    again, expected = committed_updates(tmp_path / "again"), expected_updates(lines(COUNT))
    before = Counter(word for word, _ in (expected - again))
    assert 0 < again.total() < expected.total()
    assert again == Counter((w, n) for w, n in expected if n > before[w])


def test_a_running_job_is_rescaled_up_and_down(tmp_path: Path) -> None:
    job = submit(held(tmp_path))
    when_records_flow(job, "count", 300)

    job.rescale(count=3, lines=1)

    assert {p.subtask for p in job.processes()} == {SubtaskId("lines", 0)} | {
        SubtaskId("count", index) for index in range(3)
    }
    assert {o.id: o.parallelism for o in job.report().operators}["updates"] == 3
    when_records_flow(job, "count", 100)
    job.rescale({"count": 1})
    kill_master(job)  # the next one finds the parallelism in the log
    running = wait_until(
        job, "another attempt", lambda r: r.statistics.attempt >= 4 and r.status is JobStatus.RUNNING
    )
    assert {p.subtask for p in running.processes} == {SubtaskId("lines", 0), SubtaskId("count", 0)}
    (tmp_path / "go").touch()
    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))


@pytest.mark.long
def test_a_stopped_job_stays_stopped_when_everything_dies_before_the_commit(tmp_path: Path) -> None:
    """The savepoint is complete; the JobMaster and a sink die; what comes back commits and ends."""
    arm, marker = tmp_path / "arm", tmp_path / "killed"
    sink = DeadlySink(FileSink.json(tmp_path / "out"), "before commit", str(marker), str(arm))
    job = submit(held(tmp_path, parallelism=1, every=600.0, sink=sink))
    when_records_flow(job, "count", 500)
    master = job.report().master
    assert master is not None
    arm.write_text(str(master.pid))

    path = job.stop()

    assert marker.exists()
    assert job.status() is JobStatus.FINISHED
    assert hidden_files(tmp_path / "out") == []
    finish(resume(word_count(tmp_path, paced_lines(COUNT, RATE)), path))
    assert_exactly_once(tmp_path / "out", lines(COUNT))


# -- what can't be ------------------------------------------------------------------------------------------


def test_what_is_refused_leaves_the_job_as_it_is_and_starts_no_other(tmp_path: Path) -> None:
    """A job that can't start from a snapshot fails at once and says why."""
    (tmp_path / "file").touch()
    job = submit(held(tmp_path, parallelism=1))
    when_records_flow(job, "count", 100)
    with pytest.raises(SavepointError, match="is a file; name a folder"):
        job.savepoint(tmp_path / "file" / "saved")
    with pytest.raises(SavepointError, match="unknown scheme 'ftp'"):
        job.stop("ftp://host/saved")
    with pytest.raises(RescaleError, match="no operator 'cuont'; it has: lines"):
        job.rescale(cuont=3)
    with pytest.raises(RescaleError, match="more than its max_parallelism 128"):
        job.rescale(count=200)
    assert (job.status(), job.statistics().attempt) == (JobStatus.RUNNING, 1)
    path = job.stop(tmp_path / "saved")
    renamed = environment(tmp_path)
    counted(renamed.from_source("texts", paced_lines(10, RATE)), FileSink.json(tmp_path / "out"))
    for env, url, message in (
        (
            held(tmp_path, parallelism=1),
            tmp_path / "nothing",
            "no snapshot at .*nothing is not a folder",
        ),
        (held(tmp_path, parallelism=1), tmp_path, "there is no snapshot at"),
        (renamed, path, "holds state of 'lines', which the job does not have"),
    ):
        job = resume(env, url)
        with pytest.raises(JobFailedError, match=message):
            job.wait(PATIENCE)
        assert job.statistics().attempt <= 1


@pytest.mark.long
def test_a_job_that_declares_another_type_of_state_fails_at_once_and_says_which(tmp_path: Path) -> None:
    job = submit(last_lines(tmp_path, str))
    when_records_flow(job, "last", 100)
    path = job.stop(tmp_path / "saved")

    second = resume(last_lines(tmp_path, int), path)
    with pytest.raises(JobFailedError, match=r"'last'.* state 'line' is declared as int, .* str .* key 'r"):
        second.wait(PATIENCE)

    assert (second.statistics().attempt, second.statistics().restarts) == (1, 0)


def last_lines(tmp_path: Path, of_type: type) -> StreamEnvironment:
    """The last line of each last word, in a state of a declared type."""
    env = environment(tmp_path)
    stream = env.from_source("lines", paced_lines(COUNT, RATE, attempt=NEVER))
    stream.key_by(last_word).process("last", LastLine(of_type)).sink("out", FileSink.json(tmp_path / "last"))
    return env
