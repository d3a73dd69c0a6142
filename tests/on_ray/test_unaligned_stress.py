"""Flink's stress test of unaligned checkpoints: five failures, placed by the number of checkpoints.

After two checkpoints a function fails, and after four the synchronous part of a checkpoint. After six a
function fails again, and then the recovery from that. At the very end an operator can't be closed. Between
the failures the sink is so slow that every exchange is full. So every restore must include in-flight data. In
the end nothing may be lost, duplicated or reordered.

The model is Flink's `UnalignedCheckpointITCase` (its `FailingMapper` and `VerifyingSink`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs.backpressure import after_in_flight_checkpoint
from jobs.driving import eventually, finish, submit, wait_until
from jobs.oracle import committed_rows, hidden_files
from jobs.stress import Anomalies, Stress, anomalies, armed, multi_input, pipeline, union
from jobs.words import environment

from penstock import AdvancedConfig, FixedDelay, JobConfig, JobStatus
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

FAILURES = 5
#: Seconds for a job of up to fifty processes to start, and to work off what it holds at the end.
PATIENCE = 300.0
CONFIG = JobConfig(advanced=AdvancedConfig(buffer_rows=10, credits=2), deployment_timeout=PATIENCE)


# The simulation runs the other ones each time (`tests/simulation/test_stress.py`).
@pytest.mark.parametrize(
    ("topology", "parallelism", "how"),
    [
        pytest.param(pipeline, 1, {}, id="pipeline of 1", marks=pytest.mark.long),
        pytest.param(pipeline, 1, {"aligned_timeout": 0.02}, id="pipeline of 1, with timeout"),
        pytest.param(
            pipeline, 3, {"aligned_timeout": 0.02}, id="pipeline of 3, with timeout", marks=pytest.mark.long
        ),
        pytest.param(
            multi_input,
            1,
            {"aligned_timeout": 0.02},
            id="multi-input of 1, with timeout",
            marks=pytest.mark.long,
        ),
        pytest.param(pipeline, 3, {}, id="pipeline of 3", marks=pytest.mark.long),
        pytest.param(union, 3, {}, id="union of 3", marks=pytest.mark.long),
        pytest.param(
            multi_input,
            3,
            {"aligned_timeout": 0.02},
            id="multi-input of 3, with timeout",
            marks=pytest.mark.long,
        ),
        pytest.param(union, 1, {"aligned_timeout": 0.02}, id="union of 1", marks=pytest.mark.long),
        pytest.param(pipeline, 10, {}, id="pipeline of 10", marks=pytest.mark.long),
        pytest.param(multi_input, 10, {}, id="multi-input of 10", marks=pytest.mark.long),
        pytest.param(union, 10, {}, id="union of 10", marks=pytest.mark.long),
    ],
)
def test_five_failures_lose_double_and_swap_nothing(
    tmp_path: Path, topology: Callable[..., Any], parallelism: int, how: dict[str, Any]
) -> None:
    stress = Stress(topology, parallelism, tmp_path)
    stress.shut.touch()
    restart = FixedDelay(attempts=2 * FAILURES, delay=0.1)
    env = environment(
        tmp_path, every=0.1, parallelism=parallelism, config=CONFIG, restart=restart, unaligned=True, **how
    )
    stress.build(env)
    job = submit(env)
    eventually("a running job", lambda: job.status() is JobStatus.RUNNING, PATIENCE)

    fail_after(job, tmp_path, "process", attempt=1, completed=2)
    fail_after(job, tmp_path, "prepare_commit", attempt=2, completed=4)
    after_in_flight_checkpoint(job, attempt=3, completed=6)
    armed(tmp_path, "open").touch()  # not before: the recovery that is to fail is the next one
    fail_after(job, tmp_path, "process", attempt=3, completed=6)
    wait_until(job, "the attempt after a failed recovery", lambda r: r.statistics.attempt == 5)
    after_in_flight_checkpoint(job, attempt=5, completed=8)
    armed(tmp_path, "close").touch()
    stress.released.touch()
    stress.shut.unlink()
    job.wait(PATIENCE)
    result = finish(job)

    assert result.statistics.restarts == FAILURES
    assert failures_told(job) == ["process", "prepare_commit", "process", "open", "close"]
    assert anomalies(committed_rows(tmp_path / "out"), stress.expected()) == Anomalies()
    assert hidden_files(tmp_path / "out") == []


def fail_after(job: RayJobHandle, folder: Path, where: str, *, attempt: int, completed: int) -> None:
    """Let the job fail when this many checkpoints are complete, the newest of them with data in flight."""
    after_in_flight_checkpoint(job, attempt, completed=completed)
    armed(folder, where).touch()
    wait_until(job, f"a failure in {where}", lambda report: report.statistics.attempt > attempt)


def failures_told(job: RayJobHandle) -> list[str]:
    """Places where the job has failed, from its history."""
    return re.findall(
        r"told to fail: fail in (\w+)", "\n".join(step.cause for step in job.report().transitions)
    )
