"""Only the failed region of a job is restarted: the regions, and the steps of a restart."""

from __future__ import annotations

from region_setup import A_READ, A_WRITE, ALL, B_READ, B_WRITE, A, B, Run, edge, two_pipelines, vertex

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_graph import (
    JobGraph,
    Partitioning,
)
from penstock.runtime.job.failover import FailureCause, regions_of
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.paths import SnapshotPaths

# -- what a region is ---------------------------------------------------------------------------------------


def test_pipelines_that_nothing_joins_are_regions_of_their_own() -> None:
    regions = regions_of(two_pipelines())
    assert regions[A_READ] == regions[A_WRITE] == frozenset(A)
    assert regions[B_READ] == regions[B_WRITE] == frozenset(B)


def test_everything_that_a_union_joins_is_one_region() -> None:
    vertices = (vertex("a-read", 2), vertex("b-read"), vertex("write", 3))
    graph = build_execution_graph(
        JobGraph("union", vertices, (edge("a-read", "write"), edge("b-read", "write")))
    )
    assert set(regions_of(graph).values()) == {frozenset(s.id for s in graph.subtasks)}


def test_subtasks_of_one_vertex_are_one_region_although_no_channel_joins_them() -> None:
    vertices = (vertex("a-read", 2), vertex("a-write", 2))
    graph = build_execution_graph(
        JobGraph("lanes", vertices, (edge("a-read", "a-write", Partitioning.FORWARD),))
    )
    assert set(regions_of(graph).values()) == {frozenset(s.id for s in graph.subtasks)}


# -- the way of a failure -----------------------------------------------------------------------------------


def test_the_failed_region_alone_is_stopped_and_started_again() -> None:
    run = Run().start()
    checkpoint_id = run.checkpoint()
    run.cluster.take()
    run.fail()
    assert (run.state, run.cluster.take()) == (JobState.RESTARTING, [("stop", 1, A)])
    run.until_deployed()
    assert run.cluster.take() == [
        ("complete", 1, B, checkpoint_id),
        ("deploy", 2, A, checkpoint_id),
    ]
    run.scheduler.on_deployed(2)
    assert run.cluster.take() == [("start", 2, A)]
    run.scheduler.on_started(2)
    assert run.state is JobState.RUNNING
    status = run.scheduler.statistics()
    assert (status.restarts, status.restored_checkpoint) == (1, checkpoint_id)
    assert [str(f.root) for f in status.failures] == ["a-write[0]: division by zero"]


def test_a_region_without_a_checkpoint_begins_from_nothing() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    assert run.cluster.take()[-1] == ("deploy", 2, A, None)


def test_messages_carry_the_attempt_of_the_subtask_that_they_concern() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    run.come_up()
    assert [run.scheduler.attempt_of(s) for s in ALL] == [2, 1, 2, 1]
    checkpoint_id = run.checkpoint()
    said = run.cluster.take()
    assert said == [
        ("trigger", 2, (A_READ,), checkpoint_id),
        ("trigger", 1, (B_READ,), checkpoint_id),
        ("complete", 2, A, checkpoint_id),
        ("complete", 1, B, checkpoint_id),
    ]
    assert run.scheduler.latest_completed is not None
    assert run.scheduler.latest_completed.attempt == 2


def test_what_the_stopped_attempt_of_the_region_still_says_is_stale() -> None:
    run = Run().start()
    run.fail()
    run.until_deployed()
    run.come_up()
    run.scheduler.trigger_checkpoint()
    late = run.scheduler.acknowledge(
        1, A_READ, run.cluster.barriers[-1], SubtaskSnapshot(), CheckpointMetrics()
    )
    assert late is MessageOutcome.STALE_ATTEMPT
    run.scheduler.on_subtask_failed(1, A_READ, FailureCause("late"))
    run.scheduler.on_subtask_finished(1, A_READ)
    assert run.state is JobState.RUNNING


def test_checkpoints_that_run_are_given_up_and_none_begins_before_the_region_runs() -> None:
    run = Run().start()
    answers = run.answers_of_trigger()
    run.acknowledge(1, B)
    run.fail()
    assert isinstance(answers[0], CheckpointFailed)
    assert answers[0].reason is Reason.JOB_FAILOVER_REGION
    refused = run.answers_of_trigger()
    assert refused[0].reason is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    run.until_deployed()
    run.come_up()
    assert run.checkpoint() == 2
    assert run.scheduler.statistics().checkpoints is not None
    assert run.acknowledge(1, B) == [MessageOutcome.ENDED_CHECKPOINT] * 2


def test_a_record_that_is_being_written_is_awaited_and_restored() -> None:
    run = Run().start()
    run.scheduler.trigger_checkpoint()
    run.acknowledge(1)
    run.fail()
    run.cluster.stopped()
    run.timers.advance(1)
    assert DecisionLog(run.storage, SnapshotPaths("job")).replay().last_attempt == 1
    run.runner.run_all()
    run.timers.advance(1)
    run.runner.run_all()
    said = run.cluster.take()
    assert ("complete", 1, (*A, *B), 1) in said
    assert said[-1] == ("deploy", 2, A, 1)


def test_others_may_finish_while_the_region_restarts() -> None:
    run = Run().start()
    for subtask in B:
        run.scheduler.on_end_of_data(1, subtask)
    run.checkpoint()
    run.fail()
    for subtask in B:
        run.scheduler.on_subtask_finished(1, subtask)
    run.until_deployed()
    run.come_up()
    assert run.checkpoint() == 2
    assert run.cluster.take()[0] == ("trigger", 2, (A_READ,), 2)


def test_reports_of_the_end_still_hold_for_those_that_went_on() -> None:
    run = Run().start()
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    run.fail()
    run.until_deployed()
    run.come_up()
    assert run.cluster.take() == []
    for subtask in A:
        run.scheduler.on_end_of_data(2, subtask)
    assert [said[0] for said in run.cluster.take()] == ["trigger", "trigger"], "the last checkpoint"


def test_a_subtask_that_had_finished_when_its_region_failed_is_started_again() -> None:
    run = Run().start()
    run.checkpoint()
    run.scheduler.on_subtask_finished(1, A_READ)
    run.fail(A_WRITE)
    run.until_deployed()
    run.come_up()
    run.checkpoint()
    assert ("trigger", 2, (A_READ,), 2) in run.cluster.take()
