"""A subtask that declines a checkpoint cancels it behind itself: alignments there end at once.

`end_of_partition="aborts"` is Flink 1.11's rule, and brings the decline about: a channel ends while the
subtask waits for its barrier.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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

from penstock import CheckpointError, CheckpointResult, JobConfig
from penstock.cluster import RayJobHandle
from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: Who may die: the short source has left.
MORTAL = ("main", "side", "a", "b", "c")

#: Of what the JobMaster hears of the checkpoint that is aborted, one thing comes first.
REASONS = {
    CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM,
    CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,
    CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING,
}


def alignments(job: RayJobHandle) -> dict[str, BarrierHandlerStatistics]:
    """The counters of the barrier handlers, by vertex."""
    counted = subtask_statistics(job).items()
    return {subtask.vertex: each.barriers for subtask, each in counted if each.barriers is not None}


def held_back(job: RayJobHandle) -> dict[str, int]:
    """Channels that alignments hold back, by vertex."""
    return {vertex: each.blocked for vertex, each in alignments(job).items() if each.blocked}


def completed(job: RayJobHandle) -> None:
    """Take a checkpoint. In a new attempt the short source ends again, which may abort one."""
    taken: list[CheckpointResult] = []

    def is_taken() -> bool:
        with suppress(CheckpointError):
            taken.append(job.checkpoint(timeout=PATIENCE))
        return taken != []

    eventually("a checkpoint", is_taken)


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 1), *(pytest.param(seed, 3, marks=pytest.mark.long) for seed in range(2, 9))]
)
def test_a_channel_that_ends_aborts_the_checkpoint_and_releases_the_alignments_behind_it(
    tmp_path: Path, seed: int, kills: int, record_property: Callable[[str, object], None]
) -> None:
    """Afterwards processes die at places that the seed decides, and the results are the computed ones."""
    chance = random.Random(seed)
    env = environment(tmp_path, every=600, config=JobConfig(end_of_partition="aborts"), tolerable_failures=0)
    build(env, tmp_path)
    job = submit(env)
    eventually("the end of the short source", (tmp_path / "open.ended").exists)
    job.checkpoint(timeout=PATIENCE)
    eventually("the notice that it is covered", (tmp_path / "open.reached").exists)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(job.checkpoint, timeout=PATIENCE)
        eventually("three alignments", lambda: held_back(job) == {"a": 1, "b": 1, "c": 1})
        (tmp_path / "open").touch()
        # The JobMaster may hear first that the short source has left. Then it takes another checkpoint.
        with suppress(CheckpointError):
            asked.result(PATIENCE)
    # Nothing else releases them: a newer barrier waits behind the one that holds its channel back.
    eventually("no alignment", lambda: not held_back(job))
    released = {vertex: each.cancelled_alignments for vertex, each in alignments(job).items()}
    failed = [each.record.failure for each in job.checkpoints() if each.record.failure is not None]
    assert released == {"a": 0, "b": 1, "c": 1}, "of three alignments the marker released two"
    assert failed != []
    assert set(failed) <= REASONS

    killed = []
    for attempt in range(1, kills + 1):
        completed(job)  # the channel that has ended owes no barrier any more
        killed.append(chance.choice(MORTAL))
        kill_subtask(job, killed[-1])
        wait_until(job, "another attempt", lambda r, attempt=attempt: r.statistics.attempt > attempt)  # type: ignore[misc]
    record_property("shown", f"three alignments open, two released by the marker; killed: {killed}")
    (tmp_path / "go").touch()

    result = finish(job)

    assert result.statistics.restarts == len(killed)
    rows = committed_rows(tmp_path / "out")
    assert Counter((row["source"], row["number"], row["way"]) for row in rows) == expected()
    assert hidden_files(tmp_path / "out") == []
