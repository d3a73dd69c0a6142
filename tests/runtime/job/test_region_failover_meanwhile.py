"""Failures, ends and requests while a region restarts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from region_setup import A_READ, A_WRITE, ALL, B_WRITE, Run

from penstock.runtime.config.restart import FixedDelay, NoRestart
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind

# -- when more goes wrong -----------------------------------------------------------------------------------


def test_what_fails_in_the_region_meanwhile_is_secondary() -> None:
    run = Run().start()
    run.fail(A_WRITE)
    run.fail(A_READ)
    assert run.state is JobState.RESTARTING
    (failure,) = run.scheduler.statistics().failures
    assert [cause.subtask for cause in failure.secondary] == [A_READ]


@pytest.mark.parametrize("when", ["stopping", "waiting", "writing", "deploying", "starting"])
def test_a_failure_elsewhere_meanwhile_restarts_everything(when: str) -> None:
    run = Run().start()
    checkpoint_id = run.checkpoint()
    run.fail(A_WRITE)
    advance_to(run, when)
    run.fail(B_WRITE)
    run.runner.run_all()
    attempt = run.scheduler.attempt
    assert run.state is JobState.FAILING
    assert run.cluster.take()[-1] == ("stop", attempt, "all")
    if when == "stopping":
        run.cluster.stopped()
        assert run.state is JobState.FAILING, "that the region is stopped says nothing about the others"
    run.cluster.stopped()
    run.timers.advance(1)
    run.runner.run_all()
    assert run.cluster.take() == [("deploy", attempt + 1, "all", checkpoint_id)]
    assert {run.scheduler.attempt_of(s) for s in ALL} == {attempt + 1}
    assert len(run.scheduler.statistics().failures) == 2


@pytest.mark.parametrize("when", ["stopping", "waiting", "writing", "deploying", "starting"])
def test_a_cancel_meanwhile_stops_everything(when: str) -> None:
    run = Run().start()
    run.fail(A_WRITE)
    advance_to(run, when)
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.CANCELLING
    assert run.cluster.take()[-1] == ("stop", run.scheduler.attempt, "all")
    while run.cluster.stops:
        run.cluster.stopped()
    run.runner.run_all()
    assert run.state is JobState.CANCELLED


def advance_to(run: Run, when: str) -> None:
    if when == "stopping":
        return
    run.cluster.stopped()
    steps: list[tuple[str, Callable[[], object]]] = [
        ("waiting", lambda: None),
        ("writing", lambda: run.timers.advance(1)),
        ("deploying", run.runner.run_all),
        ("starting", lambda: run.scheduler.on_deployed(2)),
    ]
    for name, step in steps:
        step()
        if name == when:
            return


def test_a_region_that_can_not_be_deployed_fails_the_attempt() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    run.scheduler.on_deployment_failed(2, FailureCause("no room", A_READ))
    assert run.state is JobState.FAILING


def test_a_storage_that_is_away_fails_the_attempt_which_then_goes_on_when_it_is_back() -> None:
    run = Run().start()
    checkpoint_id = run.checkpoint()
    run.fail()
    run.storage.refuses = True
    run.until_deployed()
    assert run.state is JobState.FAILING
    run.storage.refuses = False
    run.cluster.stopped()
    run.timers.advance(1)
    run.runner.run_all()
    assert run.cluster.take()[-1][::3] == ("deploy", checkpoint_id)


def test_a_job_that_may_not_restart_fails_with_the_cause_told_once() -> None:
    run = Run(restart=NoRestart()).start()
    run.fail()
    run.cluster.stopped()
    assert run.cluster.take()[-1] == ("stop", 1, "all")
    run.cluster.stopped()
    run.runner.run_all()
    assert run.state is JobState.FAILED
    assert [str(f.root) for f in run.scheduler.statistics().failures] == ["a-write[0]: division by zero"]
    assert run.cluster.take()[-1] == ("ended", JobState.FAILED, "a-write[0]: division by zero")


def test_restarts_of_regions_count_as_restarts() -> None:
    run = Run(restart=FixedDelay(2, 1)).start()
    for subtask in (A_WRITE, B_WRITE):
        run.fail(subtask)
        run.until_deployed()
        run.come_up()
    run.fail(A_WRITE)
    run.cluster.stopped()
    assert run.state is JobState.FAILING


def test_what_no_restart_mends_fails_the_whole_job() -> None:
    run = Run().start()
    run.fail(recoverable=False)
    assert (run.state, run.cluster.take()) == (JobState.FAILING, [("stop", 1, "all")])


def test_everything_restarts_where_that_is_asked_for() -> None:
    run = Run(failover="full").start()
    run.fail()
    assert (run.state, run.cluster.take()) == (JobState.FAILING, [("stop", 1, "all")])


def test_a_savepoint_that_was_to_stop_the_job_fails_it() -> None:
    run = Run().start()
    run.scheduler.trigger_checkpoint(SnapshotKind.SYNC_SAVEPOINT)
    run.fail()
    assert run.state is JobState.FAILING
    assert run.cluster.take()[-1] == ("stop", 1, "all")


def test_another_job_master_is_found_out_by_the_record_of_the_region() -> None:
    first = Run().start()
    first.checkpoint()
    second = Run(storage=first.storage).start()
    first.fail()
    first.until_deployed()
    assert first.cluster.take()[-1] == ("fenced",)
    assert second.checkpoint() == 2
    assert second.scheduler.attempt == 2


def test_a_job_master_that_comes_back_takes_a_number_behind_those_of_regions() -> None:
    first = Run().start()
    first.fail()
    first.until_deployed()
    first.come_up()
    second = Run(storage=first.storage)
    second.scheduler.start()
    second.runner.run_all()
    assert second.scheduler.attempt == 3, "attempt 2 was the region's"
