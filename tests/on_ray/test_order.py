"""Ray starts the calls of an async actor in any order; channels keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import (
    after_checkpoints,
    finish,
    kill_subtask,
    submit,
    subtask_statistics,
)
from jobs.faults import Slow
from jobs.lasting import Lasting
from jobs.oracle import committed_rows
from jobs.ordering import ChecksOrder, Numbered, key_of
from jobs.words import environment

from penstock import AdvancedConfig, FileSink, GeneratorSource, JobConfig
from penstock.runtime.snapshot.ids import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")

LANES, COUNT = 2, 1_500


def numbers(lanes: int, count: int) -> list[tuple[int, int]]:
    return [(lane, number) for lane in range(lanes) for number in range(count // lanes)]


def test_records_of_a_channel_stay_in_order_although_their_calls_do_not(tmp_path: Path) -> None:
    config = JobConfig(advanced=AdvancedConfig(buffer_rows=1, buffer_bytes=1, credits=16))
    env = environment(tmp_path, parallelism=LANES, config=config)
    source = GeneratorSource(Numbered(LANES), count=COUNT)
    (
        env.from_source("numbers", source)
        .key_by(key_of)
        .process("check", ChecksOrder())
        .sink("checked", FileSink.json(tmp_path / "out"))
    )
    job = submit(env)
    result = finish(job)
    counted = [each.statistics for each in job.report().subtasks if each.statistics is not None]

    rows = committed_rows(tmp_path / "out")
    assert sorted((r["lane"], r["number"]) for r in rows) == numbers(LANES, COUNT)
    assert len({(r["lane"], r["subtask"]) for r in rows}) == LANES * 2, "not all channels were used"
    wrong = [r for r in rows if not (r["in_order_of_key"] and r["in_order_of_channel"] and r["intact"])]
    assert wrong == []
    assert result.statistics.restarts == 0
    reordered = sum(each.reordered_elements for each in counted)
    assert reordered > 0, "nothing was out of order: the test proves nothing"


def test_a_kill_under_back_pressure_costs_nothing(tmp_path: Path) -> None:
    """The source is much faster than what follows: barriers queue up behind data that has no credit."""
    count = 5_000
    source = GeneratorSource(Numbered(1, small=True), count=count)
    config = JobConfig(advanced=AdvancedConfig(buffer_rows=20, credits=2))
    env = environment(tmp_path, config=config)
    (
        env.from_source("numbers", Lasting(source, attempt=2))
        .rebalance()
        .map(Slow(0.0005), id="slow", parallelism=2)
        .key_by(key_of)
        .process("check", ChecksOrder())
        .sink("checked", FileSink.json(tmp_path / "out"))
    )
    job = submit(env)
    after_checkpoints(job, 2)
    blocked = subtask_statistics(job)[SubtaskId("numbers", 0)]
    kill_subtask(job, "check")

    result = finish(job)

    rows = committed_rows(tmp_path / "out")
    assert sorted((r["lane"], r["number"]) for r in rows) == numbers(1, count)
    assert all(r["intact"] for r in rows)
    assert blocked.backpressured_seconds > 0.1
    assert result.statistics.restarts == 1
    assert result.statistics.completed_checkpoints >= 3


@pytest.mark.long  # so do the counts of `test_recovery.py`
def test_state_of_keys_goes_on_where_it_was_after_a_kill(tmp_path: Path) -> None:
    """Each key's numbers come without a gap and without a repetition, as its own state says."""
    env = environment(tmp_path, parallelism=2)
    source = GeneratorSource(Numbered(2, small=True), count=4_500, rate=3_000.0)
    (
        env.from_source("numbers", Lasting(source, attempt=2))
        .key_by(key_of)
        .process("check", ChecksOrder())
        .sink("checked", FileSink.json(tmp_path / "out"))
    )
    job = submit(env)
    after_checkpoints(job, 2)
    kill_subtask(job, "check", 1)
    kill_subtask(job, "numbers", 0)

    result = finish(job)

    rows = committed_rows(tmp_path / "out")
    assert sorted((r["lane"], r["number"]) for r in rows) == numbers(2, 4_500)
    assert [r for r in rows if not (r["in_order_of_key"] and r["intact"])] == []
    assert 1 <= result.statistics.restarts <= 2
