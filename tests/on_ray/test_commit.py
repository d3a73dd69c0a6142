"""Kills between the two phases of the commit, and between a checkpoint's completion and its notification."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, eventually, finish, submit, wait_until
from jobs.faults import DeadlySink
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import lines, paced_lines, word_count

from penstock import FileSink

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


def deadly(tmp_path: Path, at: str, *, itself: bool = True) -> DeadlySink:
    inner = FileSink.json(tmp_path / "out")
    return DeadlySink(inner, at, str(tmp_path / "killed"), str(tmp_path / "armed"), itself)


def test_a_sink_killed_between_its_phases_commits_exactly_once(tmp_path: Path) -> None:
    """After the pre-commit, with a completed checkpoint but nothing visible, and just after the commit.

    One after the other, in one job.
    """
    moments = ["after prepare", "before commit", "after commit"]
    sink: FileSink | DeadlySink = FileSink.json(tmp_path / "out")
    for at in moments:
        sink = DeadlySink(sink, at, str(tmp_path / f"killed {at}"), str(tmp_path / f"armed {at}"))
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE, attempt=len(moments) + 1), sink=sink))
    completed = 0
    for attempt, at in enumerate(moments, 1):
        before = after_checkpoints(job, completed + 2)
        assert before.statistics.attempt == attempt
        (tmp_path / f"armed {at}").touch()
        again = wait_until(job, "the restart", lambda r, a=attempt: r.statistics.attempt > a)  # type: ignore[misc]
        completed = again.statistics.completed_checkpoints
        assert (tmp_path / f"killed {at}").exists(), "it died of something else"

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == len(moments)
    assert result.statistics.completed_checkpoints > completed


@pytest.mark.long
def test_a_kill_at_the_very_first_commit_commits_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "armed").touch()
    sink = deadly(tmp_path, "before commit")
    job = submit(word_count(tmp_path, paced_lines(3_000, RATE, attempt=2), sink=sink, sink_parallelism=2))

    result = finish(job)

    assert (tmp_path / "killed").exists()
    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert result.statistics.restarts == 1


@pytest.mark.long
def test_a_job_master_and_a_sink_killed_while_a_commit_begins(tmp_path: Path) -> None:
    """The checkpoint is complete; of two sink writers one may never hear it from this JobMaster."""
    sink = deadly(tmp_path, "before commit")
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE, attempt=2), sink=sink, sink_parallelism=2))
    before = after_checkpoints(job, 2)
    assert before.master is not None
    arm(tmp_path, before.master.pid)

    result = finish(job)

    assert (tmp_path / "killed").exists()
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 1
    after = job.report()
    assert after.master is None or after.master.pid != before.master.pid


@pytest.mark.long
def test_a_kill_at_the_last_commit_of_a_bounded_job(tmp_path: Path) -> None:
    """The input has ended; the checkpoint of the end is complete and nothing of it is visible."""
    job = submit(
        word_count(tmp_path, paced_lines(3_000, RATE), sink=deadly(tmp_path, "before commit"), every=60.0)
    )
    (tmp_path / "armed").touch()

    result = finish(job)

    assert (tmp_path / "killed").exists()
    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert result.statistics.restarts == 1
    assert result.statistics.completed_checkpoints == 1, "the restart has nothing to add"


def test_a_job_master_killed_at_the_last_commit_of_a_bounded_job(tmp_path: Path) -> None:
    sink = deadly(tmp_path, "before commit", itself=False)
    job = submit(word_count(tmp_path, paced_lines(3_000, RATE), sink=sink, every=60.0))
    master = job.report().master
    assert master is not None
    arm(tmp_path, master.pid)

    result = finish(job)

    assert (tmp_path / "killed").exists()
    eventually("committed", lambda: any((tmp_path / "out").glob("[!._]*")))
    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert result.statistics.restarts == 1


def arm(tmp_path: Path, pid: int) -> None:
    """From now on the writer kills this process; renamed so that it is never seen half written."""
    whole = tmp_path / "arming"
    whole.write_text(str(pid))
    whole.rename(tmp_path / "armed")
