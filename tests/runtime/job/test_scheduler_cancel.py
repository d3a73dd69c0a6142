"""Cancelling a job in whatever state it is, and the end after which nothing moves it."""

import pytest
from scheduler_setup import Run

from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.job.job_state import JobState


def test_cancel_of_a_running_job_stops_it_and_deletes_its_checkpoints():
    run = Run().start()
    run.checkpoint()
    run.scheduler.cancel()
    assert (run.state, run.cluster.take()) == (JobState.CANCELLING, [("stop", 1)])
    run.fail()
    run.scheduler.cancel()
    run.stopped()
    assert run.state is JobState.CANCELLED
    assert run.cluster.take() == [("ended", JobState.CANCELLED, "")]
    assert run.view().ended.state == "cancelled"
    assert [p for p in run.storage.list("job/") if not p.startswith("job/log/")] == []
    assert run.timers.pending == ()


def test_checkpoints_stay_after_an_end_after_which_they_are_kept():
    run = Run(keep_after=KeepAfter.FAILURE_OR_CANCELLATION).start()
    run.checkpoint()
    run.scheduler.cancel()
    run.stopped()
    assert run.state is JobState.CANCELLED
    assert "job/chk-1-1/metadata" in run.storage.list("job/")


def bring_to(run, state):
    """Bring a new job into a state."""
    steps = {
        JobState.CREATED: lambda: None,
        JobState.DEPLOYING: lambda: (run.scheduler.start(), run.runner.run_all()),
        JobState.INITIALISING: lambda: run.scheduler.on_deployed(1),
        JobState.RUNNING: lambda: run.scheduler.on_started(1),
        JobState.FAILING: run.fail,
        JobState.RESTARTING: run.stopped,
    }
    for reached, step in steps.items():
        step()
        assert run.state is reached
        if reached is state:
            return
    raise AssertionError(state)


@pytest.mark.parametrize(
    ("state", "stops"),
    [
        (JobState.CREATED, 0),
        (JobState.DEPLOYING, 1),
        (JobState.INITIALISING, 1),
        (JobState.RUNNING, 1),
        (JobState.FAILING, 1),
        (JobState.RESTARTING, 1),
    ],
)
def test_cancel_works_in_every_state(state, stops):
    run = Run(restart=FixedDelay(delay=60))
    bring_to(run, state)
    run.scheduler.cancel()
    assert run.state is JobState.CANCELLING
    run.runner.run_all()
    if state not in (JobState.CREATED, JobState.RESTARTING):
        run.stopped()
    assert run.state is JobState.CANCELLED
    assert run.view().ended.state == "cancelled"
    assert [said[0] for said in run.cluster.said].count("stop") == stops
    assert run.timers.pending == ()


def test_cancel_while_the_attempt_is_being_written_waits_for_the_record():
    run = Run()
    run.scheduler.start()
    run.scheduler.cancel()
    assert run.state is JobState.DEPLOYING
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert run.cluster.take() == [("ended", JobState.CANCELLED, "")]


def test_nothing_moves_a_job_that_has_ended():
    run = Run().start()
    run.scheduler.cancel()
    (stopped,) = run.cluster.stops
    run.stopped()
    run.cluster.take()
    run.scheduler.start()
    run.scheduler.cancel()
    run.fail()
    stopped()
    run.timers.advance(10_000)
    assert (run.state, run.cluster.take()) == (JobState.CANCELLED, [])


def test_a_removal_of_files_that_hangs_holds_no_end_up_and_is_told():
    run = Run().start()
    run.checkpoint()
    run.cluster.take()
    run.scheduler.cancel()
    run.cluster.take()
    run.cluster.stopped()
    assert run.runner.run_next(), "the end is recorded"
    assert run.view().ended.state == "cancelled"
    run.timers.advance(59)
    assert run.state is JobState.CANCELLING
    run.timers.advance(1)
    assert run.state is JobState.CANCELLED
    [(_, _, cause)] = run.cluster.take()
    assert cause == "unneeded files were not removed within 60 s (storage_timeout)"
    run.runner.run_all()
    assert run.cluster.take() == [], "what is done later changes nothing"
