"""A job from its start to its end: how it starts, takes checkpoints and finishes."""

import json

import pytest
from prompt_runner import PromptRunner
from scheduler_setup import ALL, COUNT, READ, READS, Cluster, Run
from small_graphs import read_and_count

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed, CheckpointSucceeded
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay, NoRestart
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.job_state import JobState, Warned
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.plain_values import from_plain, to_plain
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers


def test_a_job_comes_up_step_by_step():
    run = Run()
    assert run.state is JobState.CREATED
    run.scheduler.start()
    assert (run.state, run.cluster.take()) == (JobState.DEPLOYING, [])
    run.runner.run_all()
    assert (run.view().last_attempt, run.cluster.take()) == (1, [("deploy", 1)])
    run.scheduler.on_deployed(1)
    assert (run.state, run.cluster.take()) == (JobState.INITIALISING, [("start", 1)])
    run.scheduler.on_started(1)
    assert (run.state, run.cluster.take()) == (JobState.RUNNING, [])
    run.timers.advance(10)
    assert run.cluster.take() == [("trigger", 1, 1, READS)]


def test_a_bounded_job_takes_a_last_checkpoint_at_once_and_finishes():
    run = Run().start()
    for subtask in ALL[:2]:
        run.scheduler.on_end_of_data(1, subtask)
    assert run.cluster.take() == []
    run.scheduler.on_end_of_data(1, COUNT)
    assert run.cluster.take() == [("trigger", 1, 1, ALL)]
    run.acknowledge(1)
    run.runner.run_all()
    assert run.cluster.take() == [("complete", 1, 1, ALL)]
    for subtask in ALL:
        run.scheduler.on_subtask_finished(1, subtask)
    assert run.state is JobState.RUNNING
    run.runner.run_all()
    assert run.state is JobState.FINISHED
    assert run.cluster.take() == [("ended", JobState.FINISHED, "")]
    assert run.view().ended.state == "finished"
    assert run.timers.pending == ()


def test_the_last_checkpoint_is_tried_again_when_it_fails():
    run = Run(every=1000).start()
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    run.scheduler.decline(1, COUNT, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    run.cluster.take()
    run.timers.advance(1)
    assert run.cluster.take() == [("trigger", 1, 2, ALL)]
    assert run.scheduler.statistics().checkpoints.failures_in_a_row == 1


def test_a_last_checkpoint_that_always_fails_fails_the_attempt():
    run = Run(every=1000, tolerable_failures=2, restart=NoRestart()).start()
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    for checkpoint_id in (1, 2, 3):
        run.scheduler.decline(1, COUNT, checkpoint_id, Reason.CHECKPOINT_DECLINED, "disk full")
        run.timers.advance(1)
    assert run.state is JobState.FAILING
    assert "disk full" in run.scheduler.statistics().cause


def test_a_checkpoint_that_runs_at_the_end_of_data_may_be_the_last_one():
    run = Run().start()
    run.timers.advance(10)
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    run.acknowledge(1)
    run.runner.run_all()
    for subtask in ALL:
        run.scheduler.on_subtask_finished(1, subtask)
    run.runner.run_all()
    assert run.state is JobState.FINISHED
    assert {barrier.checkpoint_id for barrier in run.cluster.barriers} == {1}


def test_whoever_reaches_the_end_of_data_while_a_checkpoint_runs_is_told_to_start_it_by_itself():
    run = Run().start()
    run.timers.advance(10)
    run.cluster.take()
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    assert run.cluster.take() == [("trigger", 1, 1, (COUNT,))], "the sources were told before"


def test_whoever_has_acknowledged_a_checkpoint_is_not_told_of_it_again():
    run = Run().start()
    run.timers.advance(10)
    run.acknowledge(1, (COUNT,))
    run.cluster.take()
    run.scheduler.on_end_of_data(1, COUNT)
    assert run.cluster.take() == []


def test_a_checkpoint_that_came_too_early_is_followed_by_a_last_one():
    run = Run(every=10).start()
    run.timers.advance(10)
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    run.acknowledge(1)
    run.runner.run_all()
    run.scheduler.on_subtask_finished(1, READ)
    run.timers.advance(0.2)
    assert {b.checkpoint_id for b in run.cluster.barriers} == {1, 2}
    assert run.cluster.take()[-1] == ("trigger", 1, 2, (READS[1], COUNT))


def test_end_of_data_that_is_reported_before_everything_runs_is_not_forgotten():
    run = Run()
    run.scheduler.start()
    run.runner.run_all()
    run.scheduler.on_deployed(1)
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    run.cluster.take()
    run.scheduler.on_started(1)
    assert run.cluster.take() == [("trigger", 1, 1, ALL)]


def test_without_checkpoints_subtasks_just_finish():
    run = Run(checkpointing=False)
    run.scheduler.start()
    run.runner.run_all()
    run.scheduler.on_deployed(1)
    run.scheduler.on_subtask_finished(1, READ)
    run.scheduler.on_started(1)
    run.scheduler.on_end_of_data(1, COUNT)
    for subtask in ALL[1:]:
        run.scheduler.on_subtask_finished(1, subtask)
    run.runner.run_all()
    assert run.state is JobState.FINISHED
    assert run.cluster.take()[-1] == ("ended", JobState.FINISHED, "")
    assert run.scheduler.statistics().checkpoints is None


def test_a_request_for_a_checkpoint_of_a_job_without_them_is_answered():
    run = Run(checkpointing=False).start()
    answers = []
    run.scheduler.trigger_checkpoint(on_answer=answers.append)
    assert isinstance(answers[0], CheckpointFailed)
    assert run.scheduler.acknowledge(1, READ, 1, SubtaskSnapshot(), CheckpointMetrics()) is (
        MessageOutcome.STALE_ATTEMPT
    )


def test_checkpoints_need_a_storage():
    with pytest.raises(ConfigurationError, match="needs a storage"):
        JobScheduler(
            "job",
            CurrentGraph(read_and_count()),
            JobConfig(checkpointing=Checkpointing(every=1)),
            Cluster(),
            None,
            ManualClock(),
            ManualTimers(ManualClock()),
            PromptRunner(),
        )


def test_a_failure_after_everything_has_finished_does_no_harm():
    run = Run().start()
    for subtask in ALL:
        run.scheduler.on_subtask_finished(1, subtask)
    run.fail()
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.FINISHED
    assert run.cluster.take() == [("ended", JobState.FINISHED, "")]
    assert run.scheduler.statistics().failures == ()


def test_checkpoints_go_on_after_a_source_has_finished():
    run = Run().start()
    run.scheduler.on_end_of_data(1, READS[1])
    run.checkpoint()
    run.scheduler.on_subtask_finished(1, READS[1])
    run.timers.advance(10)
    assert run.cluster.take() == [("trigger", 1, 2, (READ,))]
    run.acknowledge(2, (READ, COUNT))
    run.runner.run_all()
    latest = run.scheduler.latest_completed
    assert latest.operators["read"].subtasks.keys() == {0, 1}
    assert run.scheduler.statistics().subtasks[READS[1]] is SubtaskStatus.FINISHED


def test_a_request_is_answered_with_its_checkpoint():
    run = Run().start()
    answers = []
    run.scheduler.trigger_checkpoint(on_answer=answers.append)
    run.acknowledge(1)
    run.runner.run_all()
    assert isinstance(answers[0], CheckpointSucceeded)


def test_the_first_warning_of_an_operator_is_shown_whatever_its_attempt():
    """Other subtasks of the operator, and later attempts, would repeat it."""
    run = Run().start()
    for attempt, subtask, text in (0, READ, "1970"), (1, READS[1], "again"), (1, COUNT, "9999"):
        run.scheduler.report(attempt, Warned(subtask, subtask.vertex, text))
    assert run.warnings == ["operator 'read': 1970", "operator 'count': 9999"]


def test_what_reports_take_of_a_status_survives_json():
    run = Run(restart=FixedDelay(delay=0)).start()
    run.checkpoint()
    run.scheduler.trigger_checkpoint()
    run.scheduler.decline(1, READ, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    run.fail(traceback="line 3")
    run.fail(READ)
    run.stopped()
    status = run.scheduler.statistics()
    kept = [*status.failures, *status.transitions, *status.checkpoint_history]
    assert [from_plain(type(each), json.loads(json.dumps(to_plain(each)))) for each in kept] == kept
    assert run.states() == [
        JobState.DEPLOYING,
        JobState.INITIALISING,
        JobState.RUNNING,
        JobState.FAILING,
        JobState.RESTARTING,
    ]
