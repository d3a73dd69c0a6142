"""The budget of restarts: what uses it up, and that it survives JobMasters and wall clocks that jump."""

from __future__ import annotations

import pytest
from stop_setup import COUNT, Run

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.restart import (
    ExponentialBackoff,
    FailureRate,
    FixedDelay,
    RestartConfig,
    RestartMemory,
)
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.paths import SnapshotPaths

STRATEGIES = [
    FixedDelay(attempts=1, delay=0),
    ExponentialBackoff(initial=1, attempts=1, jitter=0),
    FailureRate(failures=1, interval=1e9, delay=0),
]


def rescaled(run: Run, parallelism: int) -> None:
    run.rescale(count=parallelism)
    run.acknowledge()
    run.all_stopped()
    run.come_up()


def checkpoint(run: Run) -> None:
    run.scheduler.trigger_checkpoint()
    run.acknowledge()


def failed(run: Run) -> None:
    run.scheduler.on_subtask_failed(run.scheduler.attempt, COUNT, FailureCause("out of memory"))
    run.all_stopped()


@pytest.mark.parametrize(("restart", "rescales"), list(zip(STRATEGIES, (200, 10, 10), strict=True)))
def test_hundreds_of_rescales_and_one_death_count_as_one_restart(
    restart: RestartConfig, rescales: int
) -> None:
    run = Run(restart=restart).start()
    for number in range(rescales):
        rescaled(run, 2 + number % 2)
    assert (run.scheduler.attempt, run.scheduler.statistics().restarts) == (rescales + 1, 0)

    successor = Run(run.storage, run.places, restart=restart).start()
    assert successor.state is JobState.RUNNING
    status = successor.scheduler.statistics()
    assert (status.attempt, status.restarts) == (rescales + 2, 1)

    failed(successor)
    assert successor.state is JobState.FAILED, "the one restart of its budget was used by the death"


def test_a_rescale_does_not_take_away_that_the_job_has_run_well() -> None:
    run = Run(restart=ExponentialBackoff(initial=1, jitter=0, reset_after=100)).start()
    failed(run)
    run.timers.advance(1)
    run.come_up()
    for _ in range(3):
        run.timers.advance(60)
        rescaled(run, 2 + run.parallelism()["count"] % 2)
    failed(run)
    assert run.state is JobState.RESTARTING
    assert min(timer.due for timer in run.timers.pending) == run.clock.monotonic() + 1


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
@pytest.mark.parametrize("restart", STRATEGIES, ids=lambda each: type(each).__name__)
def test_a_wall_clock_that_jumps_decides_nothing(restart: RestartConfig, jump: float) -> None:
    def budget(jumped: float) -> tuple[JobState, RestartMemory]:
        run = Run(restart=restart).start()
        run.clock.set_wall_clock(run.clock.now() + jumped)
        successor = Run(run.storage, run.places, restart=restart)
        successor.clock.set_wall_clock(successor.clock.now() + 2 * jumped)
        successor.start()
        return successor.state, DecisionLog(run.storage, SnapshotPaths("job")).replay().restarts

    assert budget(jump) == budget(0.0) == (JobState.RUNNING, budget(0.0)[1])


def test_failures_far_apart_are_borne_although_job_masters_died_in_between() -> None:
    rare = FailureRate(failures=1, interval=100, delay=0)
    run = Run(restart=rare).start()
    for _ in range(5):
        run.timers.advance(101)
        checkpoint(run)
        run = Run(run.storage, run.places, restart=rare).start()
        assert run.state is JobState.RUNNING, "each checkpoint shows how long the job has run"
    assert run.scheduler.statistics().restarts == 5


def test_deaths_without_a_checkpoint_in_between_are_a_loop_however_long_each_took() -> None:
    rare = FailureRate(failures=1, interval=100, delay=0)
    run = Run(restart=rare).start()
    run.timers.advance(1000)
    run = Run(run.storage, run.places, restart=rare).start()
    run.timers.advance(1000)
    last = Run(run.storage, run.places, restart=rare)
    last.scheduler.start()
    last.runner.run_all()
    assert last.state is JobState.FAILED


def test_the_budget_survives_the_compaction_of_the_log() -> None:
    run = Run(restart=FixedDelay(attempts=1, delay=0)).start()
    failed(run)
    run.timers.advance(0)
    run.come_up()
    run.timers.advance(50)
    log = DecisionLog(run.storage, SnapshotPaths("job"), compact_every=2)
    log.begin_attempt(0.0)
    log.drop((99,), 0.0)
    assert log.replay().compacted_at is not None
    assert log.replay().restarts == RestartMemory(1)
    last = Run(run.storage, run.places, restart=FixedDelay(attempts=1, delay=0))
    last.scheduler.start()
    last.runner.run_all()
    assert last.state is JobState.FAILED


def test_a_death_counts_although_the_first_attempt_of_the_successor_could_not_be_loaded() -> None:
    restart = FixedDelay(attempts=5, delay=0)
    run = Run(restart=restart).start()
    checkpoint(run)
    successor = Run(run.storage, run.places, restart=restart)
    listed, broken = run.storage.list, [True]

    def fails_once_behind_the_record(prefix: str) -> list[str]:
        if not prefix.startswith("job/log/") and broken:
            broken.clear()
            raise OSError("the disk is away")
        return listed(prefix)

    run.storage.list = fails_once_behind_the_record  # type: ignore[method-assign]
    successor.scheduler.start()
    successor.runner.run_all()
    assert successor.state is JobState.RESTARTING
    successor.timers.advance(0)
    successor.come_up()
    assert successor.scheduler.statistics().restarts == 2, "the death, and an attempt that was not loaded"


def test_attempts_grow_over_failures_rescales_and_take_overs_so_they_fence() -> None:
    run = Run(restart=FixedDelay(attempts=9, delay=0)).start()
    deployed = [1]
    for step in ("failure", "rescale", "take-over", "failure", "take-over", "rescale"):
        if step == "take-over":
            run = Run(run.storage, run.places, restart=FixedDelay(attempts=9, delay=0)).start()
        elif step == "rescale":
            rescaled(run, 2 + run.parallelism()["count"] % 2)
        else:
            failed(run)
            run.timers.advance(0)
            run.come_up()
        deployed.append(max(int(said.split()[1]) for said in run.cluster.said if said.startswith("deploy")))
    assert deployed == [1, 2, 3, 4, 5, 6, 7]
