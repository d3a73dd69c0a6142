"""Two pipelines in one job: what fails in one of them does not touch the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, finish, kill_master, kill_subtask, submit, wait_until
from jobs.faults import RaisesOnce
from jobs.oracle import assert_exactly_once, attempts_of_files, committed_rows, hidden_files
from jobs.words import NEVER, counted, environment, line, lines, paced_lines, wide_line

from penstock import FileSink, JobConfig, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


def two_pipelines(
    tmp_path: Path,
    config: JobConfig | None = None,
    *,
    raises: bool = False,
    text: Callable[[int], str] = line,
) -> StreamEnvironment:
    """A word count of two processes, and lines that are copied by another two; both end when released."""
    env = environment(tmp_path, config=config)
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go", line=text)
    words = env.from_source("lines", source)
    if raises:
        words = words.map(RaisesOnce(line(2_000), str(tmp_path / "raised")))
    counted(words, FileSink.json(tmp_path / "out"))
    copied = env.from_source("numbers", paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go"))
    copied.rebalance().sink("copies", FileSink.json(tmp_path / "copies"))
    return env


def pids(job: RayJobHandle) -> dict[str, int]:
    return {str(process.subtask): process.pid for process in job.processes()}


def assert_both_are_exact(tmp_path: Path, text: Callable[[int], str] = line) -> None:
    assert_exactly_once(tmp_path / "out", [text(i) for i in range(COUNT)])
    assert sorted(committed_rows(tmp_path / "copies")) == sorted(lines(COUNT))
    assert hidden_files(tmp_path / "out") == hidden_files(tmp_path / "copies") == []


def test_what_fails_restarts_its_own_pipeline_only(tmp_path: Path) -> None:
    """An operator raises, then a source is killed, then a keyed vertex."""
    job = submit(two_pipelines(tmp_path, raises=True))
    raised = wait_until(job, "the restart", lambda r: r.statistics.attempt == 2)
    after_checkpoints(job, raised.statistics.completed_checkpoints + 2)
    assert (tmp_path / "raised").exists()
    for attempt, vertex in enumerate(("lines", "count"), 3):
        before = pids(job)
        kill_subtask(job, vertex)
        again = wait_until(
            job,
            "the restart",
            lambda r, attempt=attempt: r.statistics.attempt == attempt and len(r.processes) == 4,  # type: ignore[misc]
        )
        after_checkpoints(job, again.statistics.completed_checkpoints + 2)
        after = pids(job)
        assert {name for name in before if before[name] != after[name]} == {f"{vertex}[0]"}
    (tmp_path / "go").touch()

    result = finish(job)

    assert_both_are_exact(tmp_path)
    assert attempts_of_files(tmp_path / "copies") == {1}, "the other pipeline went on"
    # Its first attempt may raise before it has committed anything.
    assert attempts_of_files(tmp_path / "out") - {1} == {2, 3, 4}
    assert (result.statistics.restarts, result.statistics.attempt) == (3, 4)
    assert restarted_regions(job.report()) == 3


def restarted_regions(report: JobReport) -> int:
    return sum("the region of" in step.cause for step in report.transitions)


@pytest.mark.long
def test_job_masters_killed_after_and_during_the_restart_of_a_region_take_everything_over(
    tmp_path: Path,
) -> None:
    """Subtasks run different attempts after the restart of a region; the next attempt is newer than both."""
    job = submit(two_pipelines(tmp_path))
    after_checkpoints(job, 1)
    kill_subtask(job, "count")
    again = wait_until(job, "the restart", lambda r: r.statistics.attempt == 2 and len(r.processes) == 4)
    after_checkpoints(job, again.statistics.completed_checkpoints + 1)
    kill_master(job)
    taken = wait_until(job, "the takeover", lambda r: r.statistics.attempt == 3 and len(r.processes) == 4)
    assert taken.statistics.restarts == 2

    after_checkpoints(job, taken.statistics.completed_checkpoints + 1)
    told = restarted_regions(job.report())
    kill_subtask(job, "count")
    wait_until(job, "the restart of a region", lambda r: restarted_regions(r) > told)
    kill_master(job)
    (tmp_path / "go").touch()

    result = finish(job)

    assert_both_are_exact(tmp_path)
    assert 3 <= result.statistics.restarts <= 4


def test_a_savepoint_behind_the_restart_of_a_region_can_be_moved_and_started_from(tmp_path: Path) -> None:
    """Subtasks of two attempts write its files, and all of them lie in its folder."""
    job = submit(two_pipelines(tmp_path, text=wide_line))
    after_checkpoints(job, 1)
    kill_subtask(job, "copies")
    again = wait_until(job, "the restart", lambda r: r.statistics.attempt == 2 and len(r.processes) == 4)
    after_checkpoints(job, again.statistics.completed_checkpoints + 1)
    assert restarted_regions(job.report()) == 1

    folder = Path(job.stop())

    assert list(folder.glob("count-*")), "the state stands in the metadata"
    (tmp_path / "go").touch()
    moved = folder.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "checkpoints" / job.job_id)
    second = two_pipelines(tmp_path, text=wide_line).submit(restore_from=str(moved))
    assert isinstance(second, RayJobHandle)
    assert finish(second).statistics.restarts == 0
    assert_both_are_exact(tmp_path, wide_line)


@pytest.mark.long
def test_failures_in_both_pipelines_restart_both(tmp_path: Path) -> None:
    job = submit(two_pipelines(tmp_path))
    after_checkpoints(job, 1)
    kill_subtask(job, "count")
    kill_subtask(job, "copies")
    wait_until(job, "a restart", lambda r: r.statistics.attempt >= 2)
    (tmp_path / "go").touch()

    result = finish(job)

    assert_both_are_exact(tmp_path)
    assert 1 <= result.statistics.restarts <= 2
