"""A subtask that declines a checkpoint cancels it behind itself: alignments there end at once.

`end_of_partition="aborts"` is Flink 1.11's rule, and brings the decline about: a channel ends while the
subtask waits for its barrier.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jobs.driving import (
    PATIENCE,
    eventually,
    finish,
    kill_subtask,
    submit,
    subtask_statistics,
    wait_until,
)
from jobs.oracle import committed_rows, hidden_files
from jobs.three_exchanges import build, expected
from jobs.words import environment

from penstock.actors import RayJobHandle
from penstock.runtime import CheckpointError, JobConfig, JobStatus
from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason

pytestmark = pytest.mark.usefixtures("ray_cluster")

VERTICES = ("main", "side", "short", "a", "b", "c")


def alignments(job: RayJobHandle) -> dict[str, BarrierHandlerStatistics]:
    """The counters of the barrier handlers, by vertex."""
    counted = subtask_statistics(job).items()
    return {subtask.vertex: each.barriers for subtask, each in counted if each.barriers is not None}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_a_channel_that_ends_aborts_the_checkpoint_and_releases_the_alignments_behind_it(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Afterwards processes die at places that the seed decides, and the results are the computed ones."""
    chance = random.Random(seed)
    env = environment(tmp_path, every=600, config=JobConfig(end_of_partition="aborts"), tolerable_failures=0)
    build(env, tmp_path)
    job = submit(env)
    eventually("a job that runs", lambda: job.status() is JobStatus.RUNNING)
    while not (tmp_path / "open.reached").exists():
        job.checkpoint(timeout=PATIENCE)  # until one covers the end of the short source
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(job.checkpoint, timeout=PATIENCE)
        eventually("three alignments", lambda: [alignments(job)[v].blocked for v in "abc"] == [1, 1, 1])
        (tmp_path / "open").touch()
        with pytest.raises(
            CheckpointError, match=r"checkpoint \d+ failed: [abc]\[0\]: the alignment was aborted"
        ):
            asked.result(PATIENCE)
    # No checkpoint follows that could release them, and main's barrier stays in front of `a`.
    eventually("no alignment", lambda: not any(each.blocked for each in alignments(job).values()))
    released = {vertex: each.cancelled_alignments for vertex, each in alignments(job).items()}
    failed = [each.record.failure for each in job.checkpoints() if each.record.failure is not None]
    assert released == {"a": 0, "b": 1, "c": 1}, "of three alignments the marker released two"
    assert len(failed) == 1
    assert failed[0] in (
        CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM,
        CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,
    )

    killed = []
    for attempt in (1, 2):
        job.checkpoint(timeout=PATIENCE)  # the channel that has ended owes no barrier any more
        killed.append(chance.choice([vertex for vertex in VERTICES if vertex != "short"]))
        kill_subtask(job, killed[-1])
        wait_until(job, "another attempt", lambda r, attempt=attempt: r.statistics.attempt > attempt)  # type: ignore[misc]
    record_property("shown", f"three alignments open, two released by the marker; killed: {killed}")
    (tmp_path / "go").touch()

    result = finish(job)

    assert result.statistics.restarts == len(killed)
    rows = committed_rows(tmp_path / "out")
    assert Counter((row["source"], row["number"], row["way"]) for row in rows) == expected()
    assert hidden_files(tmp_path / "out") == []
