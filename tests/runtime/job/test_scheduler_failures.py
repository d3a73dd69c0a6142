"""A job whose attempt, deployment, checkpoints or state fail."""

import pytest
from scheduler_setup import COUNT, READ, READS, Run

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import UserLocation
from penstock.runtime.job.failover import FailureCause, FailureHistory
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason


def test_a_failure_stops_everything_waits_and_restores_the_newest_checkpoint():
    run = Run(restart=FixedDelay(attempts=3, delay=5)).start()
    checkpoint = run.checkpoint()
    run.fail()
    assert (run.state, run.cluster.take()) == (JobState.FAILING, [("stop", 1)])
    run.stopped()
    assert (run.state, run.cluster.take()) == (JobState.RESTARTING, [])
    run.timers.advance(4.9)
    assert run.state is JobState.RESTARTING
    run.timers.advance(0.1)
    assert run.state is JobState.DEPLOYING
    run.runner.run_all()
    assert run.cluster.take() == [("deploy", 2)]
    assert run.cluster.restored == [None, checkpoint.checkpoint_id]
    run.come_up()
    run.timers.advance(10)
    assert run.cluster.take() == [("trigger", 2, 2, READS)]
    status = run.scheduler.statistics()
    assert (status.attempt, status.restarts, status.restored_checkpoint) == (2, 1, 1)


def test_the_first_failure_is_the_root_and_later_ones_are_secondary():
    run = Run().start()
    run.fail(COUNT, "division by zero", traceback="line 3")
    run.fail(READ, "its receiver is gone")
    [record] = run.scheduler.statistics().failures
    assert record.root == FailureCause("division by zero", COUNT, "line 3")
    assert [str(cause) for cause in record.secondary] == ["read[0]: its receiver is gone"]
    assert run.scheduler.statistics().cause == "count[0]: division by zero"


def test_a_crash_loop_is_bounded_and_the_job_fails_with_its_root_cause():
    run = Run(restart=FixedDelay(attempts=2, delay=1)).start()
    for _ in range(2):
        run.fail()
        run.stopped()
        run.timers.advance(1)
        run.come_up()
    run.fail()
    run.stopped()
    assert run.state is JobState.FAILED
    assert run.cluster.take()[-1] == ("ended", JobState.FAILED, "count[0]: division by zero")
    assert run.scheduler.statistics().transitions[-1].cause == "it has used its 2 restarts"
    assert (run.view().ended.state, run.view().ended.cause) == ("failed", "count[0]: division by zero")
    assert run.timers.pending == ()


def test_a_failure_that_would_come_again_is_not_tried_again():
    run = Run(restart=FixedDelay(attempts=9)).start()
    run.fail(recoverable=False)
    run.stopped()
    assert run.state is JobState.FAILED


def with_two_checkpoints(**settings):
    run = Run(restart=FixedDelay(attempts=9), retain=2, **settings).start()
    older, newer = (run.checkpoint().checkpoint_id for _ in range(2))
    run.fail()
    run.stopped()
    run.timers.advance(1)
    run.runner.run_all()
    return run, older, newer


def test_state_that_turns_out_to_be_damaged_fails_the_job():
    run, _, newer = with_two_checkpoints()
    assert run.scheduler.statistics().restored_checkpoint == newer
    run.fail(text="shared/x is damaged", recoverable=False, is_damage=True)
    run.stopped()
    assert run.state is JobState.FAILED
    assert run.view().ended.cause == "count[0]: shared/x is damaged"


def test_state_that_turns_out_to_be_damaged_is_left_for_an_older_checkpoint_if_that_is_allowed():
    run, older, newer = with_two_checkpoints(allow_older=True)
    run.fail(text="shared/x is damaged", recoverable=False, is_damage=True)
    run.stopped()
    run.timers.advance(1)
    run.runner.run_all()
    seen = run.scheduler.statistics()
    assert seen.restored_checkpoint == older
    assert f"checkpoint {newer}: count[0]: shared/x is damaged" in seen.warning
    assert "Sinks may repeat" in seen.warning
    assert [record.checkpoint_id for record in run.view().completed] == [older]


@pytest.mark.parametrize("when", ["deploying", "initialising"])
def test_a_failed_deployment_or_start_is_a_failure_like_any_other(when):
    run = Run(restart=FixedDelay(attempts=1, delay=1))
    run.scheduler.start()
    run.runner.run_all()
    if when == "initialising":
        run.scheduler.on_deployed(1)
        run.fail()
    else:
        run.scheduler.on_deployment_failed(1, FailureCause("4 CPUs are missing"))
    assert (run.state, run.cluster.take()[-1]) == (JobState.FAILING, ("stop", 1))
    run.scheduler.on_deployed(1)
    run.scheduler.on_started(1)
    assert run.state is JobState.FAILING
    run.stopped()
    run.timers.advance(1)
    run.come_up()
    assert run.scheduler.attempt == 2


def test_too_many_failed_checkpoints_restart_the_job():
    run = Run(tolerable_failures=0).start()
    run.scheduler.trigger_checkpoint()
    run.scheduler.decline(1, COUNT, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    assert run.state is JobState.FAILING
    assert (
        run.scheduler.statistics().cause == "checkpoint 1 failed (checkpoint_declined): count[0]: disk full"
    )


def test_the_next_attempt_waits_for_a_record_that_is_being_written_and_restores_it():
    run = Run(restart=FixedDelay(delay=0)).start()
    run.scheduler.trigger_checkpoint()
    run.acknowledge(1)
    run.fail()
    run.cluster.stopped()
    assert run.state is JobState.FAILING
    run.runner.run_next()
    assert run.state is JobState.RESTARTING
    run.timers.advance(0)
    run.runner.run_all()
    assert run.cluster.restored == [None, 1]


def test_answers_of_older_attempts_change_nothing():
    run = Run(restart=FixedDelay(delay=0)).start()
    run.fail()
    (stopped,) = run.cluster.stops
    run.stopped()
    run.timers.advance(0)
    run.come_up()
    before = run.scheduler.statistics()
    run.scheduler.on_subtask_failed(1, READ, FailureCause("late"))
    run.scheduler.on_subtask_finished(1, READ)
    run.scheduler.on_end_of_data(1, READ)
    run.scheduler.on_deployed(1)
    run.scheduler.on_deployment_failed(1, FailureCause("late"))
    run.scheduler.on_started(1)
    stopped()
    outcome = run.scheduler.decline(1, READ, 1, Reason.CHECKPOINT_DECLINED)
    after = run.scheduler.statistics()
    assert outcome is MessageOutcome.STALE_ATTEMPT
    assert (after.state, after.transitions, after.failures) == (
        JobState.RUNNING,
        before.transitions,
        before.failures,
    )


def test_events_that_no_state_waits_for_are_ignored():
    run = Run().start()
    run.scheduler.start()
    run.scheduler.on_deployed(1)
    assert run.state is JobState.RUNNING


def test_a_damaged_checkpoint_fails_the_job_unless_an_older_one_is_allowed():
    first = Run(retain=2).start()
    first.checkpoint()
    first.checkpoint()
    first.storage.put("job/chk-2-1/metadata", b"rubbish")
    strict = Run(storage=first.storage)
    strict.scheduler.start()
    strict.runner.run_all()
    assert strict.state is JobState.FAILED
    assert "job/chk-2-1/metadata" in strict.cluster.take()[-1][2]


def test_an_older_checkpoint_is_restored_when_the_user_allowed_it():
    first = Run(retain=2).start()
    first.checkpoint()
    first.checkpoint()
    first.storage.put("job/chk-2-1/metadata", b"rubbish")
    lenient = Run(storage=first.storage, retain=2, allow_older=True).start()
    assert lenient.cluster.restored == [1]
    assert "Sinks may repeat" in lenient.scheduler.statistics().warning
    assert lenient.checkpoint().checkpoint_id == 3


def test_a_job_whose_newest_checkpoint_only_a_damaged_record_knew_says_so():
    first = Run(retain=1).start()
    first.checkpoint()
    first.checkpoint()
    newest = first.storage.list("job/log/")[-1]
    first.storage.put(newest, bytes(reversed(first.storage.get(newest))))
    lenient = Run(storage=first.storage, retain=1, allow_older=True)
    lenient.scheduler.start()
    lenient.runner.run_all()
    assert lenient.state is JobState.FAILED
    cause = lenient.cluster.take()[-1][2]
    assert "job/chk-1-1/metadata is part of a snapshot but is not there" in cause
    assert f"Earlier records of the job's decision log are damaged: memory:/{newest}" in cause


def fail_on_bad_input(run, text="a.csv:17: 2 fields", **how):
    run.fail(READ, text, is_bad_input=True, **how)
    run.stopped()
    run.timers.advance(1)
    run.runner.run_all()
    run.come_up() if run.state is JobState.DEPLOYING else None


def test_the_same_bad_input_ends_the_job_at_its_second_failure():
    run = Run(restart=FixedDelay(attempts=9, delay=1)).start()
    fail_on_bad_input(run)
    assert run.state is JobState.RUNNING
    fail_on_bad_input(run, "b.csv:3: 2 fields")
    run.fail(COUNT)
    run.stopped()
    run.timers.advance(1)
    run.runner.run_all()
    run.come_up()
    assert run.state is JobState.RUNNING
    fail_on_bad_input(run)
    assert run.state is JobState.FAILED
    assert run.cluster.take()[-1] == ("ended", JobState.FAILED, "read[0]: a.csv:17: 2 fields")
    assert run.scheduler.statistics().transitions[-1].cause == "it would fail again"


def test_a_failed_job_whose_end_can_never_be_recorded_says_both():
    run = Run().start()
    run.storage.down = True
    run.fail(recoverable=False)
    run.stopped()
    while run.timers.fire_next():
        run.runner.run_all()
    cause = run.scheduler.statistics().transitions[-1].cause
    assert cause.startswith("it would fail again; its end could not be recorded: ")


def test_a_function_that_fails_twice_in_the_same_way_may_heal():
    run = Run(restart=FixedDelay(attempts=9, delay=1)).start()
    for _ in range(3):
        run.fail(COUNT, "division by zero")
        run.stopped()
        run.timers.advance(1)
        run.runner.run_all()
        run.come_up()
    assert run.state is JobState.RUNNING


AT_A_LINE = {"operator": "count", "raised_at": UserLocation("job.py", 7, "parse")}


def fail_and_restart(run, **how):
    run.fail(COUNT, **{**AT_A_LINE, **how})
    run.stopped()
    if run.state is not JobState.FAILED:
        run.timers.advance(60)
        run.runner.run_all()
        run.come_up()


def test_by_default_a_second_failure_at_one_line_before_any_checkpoint_ends_the_job():
    run = Run().start()
    fail_and_restart(run, text="division by 0")
    fail_and_restart(run, raised_at=UserLocation("job.py", 9, "other"))
    fail_and_restart(run, raised_at=None)
    fail_and_restart(run, raised_at=None)
    assert run.state is JobState.RUNNING, "these failures have other places, or none"
    fail_and_restart(run, text="division by 0.0")
    assert run.state is JobState.FAILED
    (*_, cause) = run.cluster.take()[-1]
    assert cause.startswith("count[0]: division by 0.0\nThe job has failed twice at this line")


def test_two_regions_that_fail_at_one_line_in_one_attempt_have_not_failed_twice():
    history = FailureHistory()
    cause = FailureCause("division by zero", READ, **AT_A_LINE)
    history.attempt_failed(1, 0.0, cause)
    assert history.known(1, cause, fails_fast=True).recoverable
    assert not history.known(2, cause, fails_fast=True).recoverable


def test_after_a_checkpoint_a_failure_at_one_line_may_be_transient():
    run = Run().start()
    run.checkpoint()
    for _ in range(3):
        fail_and_restart(run)
    assert run.state is JobState.RUNNING


def test_a_restart_strategy_of_the_user_is_followed_also_before_any_checkpoint():
    run = Run(restart=FixedDelay(attempts=9, delay=1)).start()
    for _ in range(3):
        fail_and_restart(run)
    assert run.state is JobState.RUNNING
