"""A checkpoint storage that does not answer: each call is given up, and the job continues or is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from jobs.driving import PATIENCE, assert_no_subtasks, finish, kill_subtask, submit, wait_until
from jobs.oracle import assert_exactly_once, committed_updates, expected_updates, hidden_files
from jobs.unanswered import unanswered
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import AdvancedConfig, FixedDelay, JobCancelledError, JobConfig, JobStatus
from penstock.cluster import JobReport, RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 3_000, 3_000.0
#: Seconds; the disk of a busy machine has stood still for ten.
TIMEOUT = 12
QUICK = JobConfig(advanced=AdvancedConfig(storage_timeout=TIMEOUT))


def is_given_up(metadata: Path) -> Callable[[JobReport], bool]:
    told = f"can't read {metadata}: no answer for {TIMEOUT} s (storage_timeout)"
    return lambda report: told in str(report.history)


def with_one_checkpoint(tmp_path: Path) -> tuple[RayJobHandle, Path]:
    """A running job whose only checkpoint was taken by hand, and the file that each restart reads."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FixedDelay(attempts=1_000, delay=0.1)
    job = submit(word_count(tmp_path, source, every=600, restart=restart, config=QUICK))
    wait_until(job, "a running job", lambda r: r.status is JobStatus.RUNNING)
    return job, Path(job.checkpoint(timeout=PATIENCE).path) / "metadata"


def test_a_read_that_never_returns_is_given_up_until_the_storage_answers_again(tmp_path: Path) -> None:
    job, metadata = with_one_checkpoint(tmp_path)
    with unanswered(metadata):
        kill_subtask(job, "count")
        wait_until(job, "a read given up", is_given_up(metadata))
    wait_until(job, "a running job", lambda r: r.status is JobStatus.RUNNING)
    (tmp_path / "go").touch()

    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []


@pytest.mark.long
def test_a_job_whose_storage_does_not_answer_is_cancelled(tmp_path: Path) -> None:
    job, metadata = with_one_checkpoint(tmp_path)
    with unanswered(metadata):
        kill_subtask(job, "count")
        wait_until(job, "a read given up", is_given_up(metadata))
        job.cancel()  # the next read hangs by now, or soon

        with pytest.raises(JobCancelledError):
            job.wait(PATIENCE)

        assert_no_subtasks(job)
    assert job.status() is JobStatus.CANCELLED
    assert committed_updates(tmp_path / "out") <= expected_updates(lines(COUNT))
