"""A program that runs twice, with its output in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import failure_of, finish, submit
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import lines, paced_lines, word_count

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 300


def test_a_program_that_runs_again_fails_at_once_and_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    first = submit(word_count(tmp_path, paced_lines(COUNT, 3_000.0)))
    finish(first)
    second = submit(word_count(tmp_path, paced_lines(COUNT, 3_000.0)))
    message = failure_of(second)

    assert "operator 'updates', defined at " in message
    assert f"{tmp_path}/out has output of another job: job {first.job_id} has committed part-" in message
    assert (second.report().statistics.attempt, second.report().statistics.restarts) == (1, 0)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
