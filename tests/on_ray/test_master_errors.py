"""Errors of users' code in the JobMaster: the job or the hook is named, and the process continues."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import failure_of, finish, submit
from jobs.failing_masters import Uncatalogued, Unclosable, Unsendable
from jobs.oracle import assert_exactly_once
from jobs.words import lines, paced_lines, word_count

from penstock.actors.shared.job_report import Takeover
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")


def takeovers(job: RayJobHandle) -> int:
    """Number of takeovers by another process after the death of a JobMaster."""
    return sum(isinstance(entry, Takeover) for entry in job.report().history)


@pytest.mark.long
def test_an_on_error_of_an_enumerator_that_raises_fails_the_job_by_the_name_of_its_source(
    tmp_path: Path,
) -> None:
    job = submit(word_count(tmp_path, Uncatalogued()))

    message = failure_of(job)

    assert "operator 'lines'" in message
    assert "source Uncatalogued: on_error of background work failed: KeyError: 'left'" in message
    assert "in _on_error" in message, "the user's line"
    assert takeovers(job) == 0


def test_a_split_that_can_not_be_encoded_fails_the_job_at_once(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, Unsendable()))

    message = failure_of(job)

    assert "operator 'lines'" in message
    assert "an event for subtask 0 can't be sent: a value of type _thread.lock can't be pickled" in message
    assert job.statistics().restarts == 0
    assert takeovers(job) == 0


@pytest.mark.long
def test_a_hook_whose_close_raises_is_named_and_the_checkpoints_are_deleted_all_the_same(
    tmp_path: Path,
) -> None:
    source = Unclosable(paced_lines(900, 3_000.0))
    job = submit(word_count(tmp_path, source, keep_after="never"))

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(900))
    assert result.statistics.completed_checkpoints >= 1
    left = [file for file in (tmp_path / "checkpoints" / job.job_id).rglob("*") if file.is_file()]
    assert {file.parent.name for file in left} <= {"log", job.job_id}, "checkpoints are left"
    [warning] = [each for each in job.report().warnings if "master hook" in each]
    assert "operator 'lines'" in warning
    assert "master hook 'outside': close failed: ConnectionError: the connection is gone, at " in warning
    assert takeovers(job) == 0
