"""Ray starts the calls of an async actor in any order; channels keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import eventually, finish, submit, subtask_statistics
from jobs.oracle import committed_rows
from jobs.ordering import ChecksOrder, Numbered, key_of
from jobs.words import environment

from penstock.runtime import FileSink, GeneratorSource, JobConfig

pytestmark = pytest.mark.usefixtures("ray_cluster")

LANES, COUNT = 2, 1_500


def test_records_of_a_channel_stay_in_order_although_their_calls_do_not(tmp_path: Path) -> None:
    config = JobConfig(buffer_rows=1, buffer_bytes=1, credits=16)
    env = environment(tmp_path, parallelism=LANES, config=config)
    source = GeneratorSource(Numbered(LANES), count=COUNT)
    (
        env.from_source("numbers", source)
        .key_by(key_of)
        .process("check", ChecksOrder())
        .sink("checked", FileSink.json(tmp_path / "out"))
    )
    job = submit(env)
    reordered: dict[object, int] = {}

    def ended() -> bool:
        reordered.update({s: seen.reordered_elements for s, seen in subtask_statistics(job).items()})
        return job.status().is_terminal

    eventually("the end", ended)
    result = finish(job)

    rows = committed_rows(tmp_path / "out")
    assert sorted((r["lane"], r["number"]) for r in rows) == [
        (lane, number) for lane in range(LANES) for number in range(COUNT // LANES)
    ]
    assert len({(r["lane"], r["subtask"]) for r in rows}) == LANES * 2, "not all channels were used"
    wrong = [r for r in rows if not (r["in_order_of_key"] and r["in_order_of_channel"] and r["intact"])]
    assert wrong == []
    assert result.statistics.restarts == 0
    assert sum(reordered.values()) > 0, "nothing was out of order: the test proves nothing"
