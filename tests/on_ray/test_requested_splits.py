"""Splits on request, while a reader dies in a split, or the JobMaster that has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, finish, kill_master, kill_subtask, submit, wait_until
from jobs.eager import Eager
from jobs.oracle import assert_exactly_once, committed_rows, hidden_files
from jobs.pieces import Pieces
from jobs.words import lines, word_count

from penstock import FileSink, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle
from penstock.connectors import OnRequest

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, PIECES = 1_200, 48


def started(env: StreamEnvironment) -> tuple[RayJobHandle, JobReport]:
    """A job in which both readers have read some splits, and others are not handed out yet."""
    job = submit(env)
    after_checkpoints(job, 2)

    def has_read(report: JobReport) -> bool:
        return report.statistics.operators["lines"].records_out >= COUNT // 4

    return job, wait_until(job, "some splits read", has_read)


@pytest.mark.parametrize("who", [pytest.param("reader", marks=pytest.mark.long), "master"])
def test_every_split_is_read_once_whoever_is_killed(tmp_path: Path, who: str) -> None:
    job, before = started(word_count(tmp_path, OnRequest(Pieces(COUNT, PIECES, attempt=2)), parallelism=2))
    assert before.statistics.restarts == 0

    killed = kill_subtask(job, "lines", 1) if who == "reader" else kill_master(job)

    result = finish(job)
    assert killed
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert (result.statistics.restarts, result.statistics.attempt) == (1, 2)


def test_a_region_that_fails_gives_its_splits_back_while_the_other_reads_on(tmp_path: Path) -> None:
    env = word_count(tmp_path, OnRequest(Pieces(COUNT, PIECES, attempt=2)), parallelism=2)
    other = env.from_source("other", OnRequest(Pieces(200, 8, attempt=2)), parallelism=1)
    other.sink("copies", FileSink.json(tmp_path / "copies"))
    job, _ = started(env)

    kill_subtask(job, "lines", 0)

    result = finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert sorted(committed_rows(tmp_path / "copies")) == sorted(lines(200))
    assert result.statistics.restarts == 1
    attempts = {int(file.name.rsplit("-", 2)[1]) for file in (tmp_path / "copies").glob("part-*")}
    assert attempts == {1}, "the other source went on"


@pytest.mark.long
def test_splits_that_are_assigned_before_the_readers_are_deployed_reach_them(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, Eager(200, 8), parallelism=2))
    result = finish(job)
    assert_exactly_once(tmp_path / "out", lines(200))
    assert result.statistics.restarts == 0
