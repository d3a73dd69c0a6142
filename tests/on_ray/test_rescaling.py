"""Real jobs go on at another parallelism, from the checkpoint that a cancelled one has left: exactly once.

The cases are those of `tests/properties/test_rescale_matrix.py`. There each runs with both kinds of
checkpoints; here they take turns. Two show both directions with data in flight; `test_savepoints.py` has
aligned ones. The simulation runs all thirty (`tests/simulation/test_rescale_cases.py`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from jobs.backpressure import after_in_flight_checkpoint, completed_records
from jobs.driving import after_checkpoints, eventually, finish, submit, when_records_flow
from jobs.lasting import Lasting
from jobs.oracle import committed_rows, hidden_files
from jobs.rescaling import CASES, Case, itself
from jobs.throttled import Throttled
from jobs.words import NEVER, environment

from penstock import (
    AdvancedConfig,
    FileSink,
    GeneratorSource,
    JobCancelledError,
    JobConfig,
    JobStatus,
    StreamEnvironment,
)
from penstock.cluster import RayJobHandle
from penstock.runtime.snapshot.ids import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT = 2_000
#: Seconds for a job of up to sixty processes to start.
PATIENCE = 600.0
CONFIG = JobConfig(advanced=AdvancedConfig(buffer_rows=10, credits=2), deployment_timeout=PATIENCE)

TAKING_TURNS = [(case, index % 2 == 1) for index, case in enumerate(CASES)]
QUICK = {
    (Case("keyed", 2, 3), True),
    (Case("rebalanced", 2, 1), True),
}


def test_two_cases_show_both_directions_and_exchanges_with_data_in_flight() -> None:
    assert len(QUICK & set(TAKING_TURNS)) == 2
    assert {case.old < case.new for case, _ in QUICK} == {True, False}
    assert {case.shape for case, unaligned in QUICK if unaligned} == {"keyed", "rebalanced"}


def marked(case: Case, unaligned: bool) -> object:
    marks = [] if (case, unaligned) in QUICK else [pytest.mark.long, pytest.mark.timeout(2 * PATIENCE)]
    return pytest.param(case, unaligned, id=f"{case}, {'un' * unaligned}aligned", marks=marks)


def job_of(case: Case, parallelism: int, unaligned: bool, folder: Path) -> StreamEnvironment:
    """Its sources do not end before the file `go` is there, and its sink is slow while there is `shut`."""
    env = environment(
        folder,
        every=0.2,
        parallelism=parallelism,
        config=CONFIG,
        unaligned=unaligned,
        keep_after="failure_or_cancellation",
    )

    def numbers() -> Lasting[int]:
        return Lasting(GeneratorSource(itself, count=COUNT), NEVER, str(folder / "go"))

    # A record takes longer where more subtasks share them, so that what waits lasts as long.
    sink = Throttled(FileSink.json(folder / "out"), str(folder / "shut"), seconds=0.03 * parallelism)
    case.build(env, parallelism, numbers, sink)
    return env


def assert_parallelism(job: RayJobHandle, parallelism: int) -> None:
    running = {process.subtask for process in job.processes() if process.subtask.vertex == "count"}
    assert running == {SubtaskId("count", index) for index in range(parallelism)}


@pytest.mark.parametrize(("case", "unaligned"), [marked(*each) for each in TAKING_TURNS])
def test_a_job_goes_on_exactly_once_at_another_parallelism(
    case: Case, unaligned: bool, tmp_path: Path
) -> None:
    expected = case.expected(COUNT)
    if unaligned:
        (tmp_path / "shut").touch()
    first = submit(job_of(case, case.old, unaligned, tmp_path))
    running(first)
    assert_parallelism(first, case.old)
    if unaligned:
        after_in_flight_checkpoint(first, attempt=1)
    else:
        when_records_flow(first, "count", expected.total() // 2)
        after_checkpoints(first, first.statistics().completed_checkpoints + 2)
    first.cancel()
    with pytest.raises(JobCancelledError):
        first.wait(PATIENCE)

    restored = completed_records(first.report(), attempt=1)[-1]
    assert (restored.in_flight_bytes > 0) == unaligned
    assert committed(tmp_path).total() < expected.total()
    (tmp_path / "shut").unlink(missing_ok=True)
    second = job_of(case, case.new, unaligned, tmp_path).submit(
        restore_from=str(tmp_path / "checkpoints" / first.job_id)
    )
    assert isinstance(second, RayJobHandle)
    running(second)
    assert_parallelism(second, case.new)
    (tmp_path / "go").touch()
    result = finish(second)

    assert (first.report().statistics.restarts, result.statistics.restarts) == (0, 0)
    assert committed(tmp_path) == expected
    assert hidden_files(tmp_path / "out") == []  # the first job has left only what the second commits


def running(job: RayJobHandle) -> None:
    eventually("deployed", lambda: job.status() not in (JobStatus.CREATED, JobStatus.DEPLOYING), PATIENCE)
    assert job.status() is JobStatus.RUNNING, job.report().failure


def committed(folder: Path) -> Counter[tuple[int, ...]]:
    return Counter(map(tuple, committed_rows(folder / "out")))
