"""A JobMaster dies with a job that takes no checkpoints: nothing is begun again over what was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from jobs.driving import assert_no_subtasks, eventually, finish, kill_master, submit, when_records_flow
from jobs.words import lines, paced_lines, word_count

from penstock.runtime.errors import JobFailedError

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_the_job_fails_and_says_why(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(1_000_000, 3_000.0), every=None))
    when_records_flow(job, "count", 100)
    kill_master(job)

    with pytest.raises(JobFailedError, match="takes no checkpoints"):
        job.wait(60)

    assert_no_subtasks(job)


def test_a_job_that_had_ended_stays_finished(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(300, 3_000.0), every=None))
    finish(job)
    kill_master(job)

    def has_left() -> bool:
        return job.report().status.value == "finished" and not ray.util.list_named_actors(all_namespaces=True)

    eventually("the end of the JobMaster that came back", has_left)
    written = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert len(written) == sum(len(line.split()) for line in lines(300))
