"""Checkpoints that fail, and records that may or may not be in the log."""

import pytest
from coordinator_setup import ALL, COUNT, COUNTS, READ, READS, Run

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics, CheckpointStatus
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.metadata import write_state_file


def test_too_many_failures_in_a_row_fail_the_job_once():
    run = Run(tolerable_failures=1)
    run.trigger()
    run.coordinator.decline(1, READ, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    assert ("fail_job",) not in run.gateway.take()
    run.trigger()
    run.coordinator.decline(1, COUNT, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert run.gateway.take()[-2:] == [("aborted", 2, ALL), ("fail_job",)]
    assert run.gateway.causes == ["checkpoint 2 failed (checkpoint_declined): count[0]: disk full"]


def test_an_aborted_checkpoint_lasted_from_its_start_to_its_abort():
    run = Run()
    run.timers.advance(100)
    run.trigger()
    run.timers.advance(2)
    run.coordinator.decline(1, READ, 1)
    assert run.coordinator.history.records()[0].duration == 2.0


def test_a_success_in_between_makes_the_count_begin_anew():
    run = Run(tolerable_failures=1)
    for checkpoint_id in (1, 3, 5):
        run.trigger()
        run.coordinator.decline(1, READ, checkpoint_id)
        run.trigger()
        run.complete(checkpoint_id + 1)
    assert run.gateway.causes == []
    assert run.coordinator.statistics().failures_in_a_row == 0


def test_a_decline_of_a_checkpoint_whose_record_is_being_written_comes_too_late():
    run = Run()
    run.trigger()
    run.acknowledge(1)
    assert run.coordinator.history.records()[0].status is CheckpointStatus.FINALIZING
    assert run.coordinator.decline(1, READ, 1) is MessageOutcome.DUPLICATE
    run.timers.advance(1000)
    run.runner.run_all()
    assert isinstance(run.answers[0], CheckpointSucceeded)


def test_records_are_written_one_after_the_other():
    run = Run(max_concurrent=3)
    for _ in range(2):
        run.trigger()
    run.acknowledge(1)
    run.acknowledge(2)
    assert run.runner.waiting == 1
    run.runner.run_all()
    assert [said for said in run.gateway.said if said[0] == "complete"] == [
        ("complete", 1, ALL),
        ("complete", 2, ALL),
    ]


def test_a_checkpoint_that_expires_while_it_waits_for_its_turn_to_be_written_is_not_written():
    run = Run(max_concurrent=2, timeout=60)
    run.trigger()
    run.trigger(SnapshotKind.SAVEPOINT)
    run.acknowledge(1)
    run.acknowledge(2)
    run.timers.advance(60)
    [answer] = run.answers
    assert (answer.checkpoint_id, answer.reason) == (2, Reason.CHECKPOINT_EXPIRED)
    assert "its turn to be written" in answer.detail
    run.runner.run_all()
    assert [record.checkpoint_id for record in run.log.replay().completed] == [1]
    assert run.coordinator.pending_ids == ()


def test_metadata_that_can_not_be_written_fails_it_and_its_files_go():
    run = Run(tolerable_failures=0)
    run.trigger()
    run.storage.broken = "chk-1-1"
    run.complete(1)
    assert run.answers[0].reason is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert ("aborted", 1, ALL) in run.gateway.said
    assert run.gateway.said[-1] == ("fail_job",)
    assert run.state_files() == []
    run.storage.broken = None
    run.trigger()
    run.complete(2)
    assert run.coordinator.latest_completed.checkpoint_id == 2


def test_a_record_of_which_nobody_knows_whether_it_is_there_deletes_nothing():
    run = Run()
    run.trigger()
    run.storage.broken = "job/log/"
    run.complete(1)
    assert run.answers[0].reason is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert len(run.state_files()) == 4
    assert run.coordinator.latest_completed is None


def test_damaged_state_that_all_checkpoints_have_to_copy_fails_the_attempt_whatever_is_tolerated():
    """A finished subtask has its state in a savepoint: the next attempt names the damage."""
    run = Run(tolerable_failures=None)
    run.trigger(SnapshotKind.SAVEPOINT)
    path = run.paths.savepoint_file(checkpoint_id=1, attempt=1, operator_id="read", subtask=1, number=0)
    keyed = KeyedStateHandle(KeyGroupRange(0, 63), (write_state_file(run.storage, path, b"sums"),), 1)
    snapshot = SubtaskSnapshot({"read": OperatorSubtaskState(keyed=(keyed,))})
    run.coordinator.acknowledge(1, READS[1], 1, snapshot, CheckpointMetrics())
    run.complete(1, subtasks=(READ, *COUNTS))
    run.coordinator.subtask_finished(READS[1])
    run.storage.put(path, b"ruin")
    run.trigger()
    run.complete(2, subtasks=(READ, *COUNTS))
    assert run.gateway.said[-1] == ("fail_job",)
    assert f"{path} should be a file of a snapshot but is damaged" in run.gateway.causes[0]
    assert [name for name in run.state_files() if name.startswith("2-")] == [], "no record names them"


def test_damage_that_only_a_savepoint_has_to_copy_fails_that_savepoint_alone():
    run = Run(tolerable_failures=0)
    run.trigger()
    run.complete(1)
    run.coordinator.subtask_finished(READS[1])
    run.storage.put("job/shared/1-1-read-1-0", b"ruin")
    run.trigger(SnapshotKind.SAVEPOINT)
    run.complete(2, subtasks=(READ, *COUNTS))
    assert run.answers[-1].reason is Reason.FINALIZE_CHECKPOINT_FAILURE
    run.trigger()
    run.complete(3, subtasks=(READ, *COUNTS))
    assert run.coordinator.latest_completed.checkpoint_id == 3
    assert run.gateway.causes == []


def test_another_attempt_in_the_log_fences_it_for_good_and_nothing_is_deleted():
    run = Run(max_concurrent=2)
    run.trigger()
    run.trigger()
    run.acknowledge(2, READS)
    DecisionLog(run.storage, run.paths).begin_attempt(run.clock.now())
    run.gateway.take()
    run.complete(1)
    assert run.gateway.take() == [("fenced",)]
    assert [a.reason for a in run.answers] == [Reason.CHECKPOINT_COORDINATOR_SHUTDOWN] * 2
    assert run.coordinator.acknowledge(1, COUNT, 2) is MessageOutcome.STALE_ATTEMPT
    assert len(run.state_files()) == 6
    run.timers.advance(10_000)
    run.trigger()
    assert run.gateway.take() == []


def test_fenced_coordinator_writes_nothing_more_answers_everybody_and_has_no_timers():
    run = Run(max_concurrent=2)
    run.coordinator.start_periodic()
    for _ in range(3):
        run.trigger()
    run.acknowledge(1)
    run.acknowledge(2, READS)
    DecisionLog(run.storage, run.paths).begin_attempt(run.clock.now())
    run.gateway.take()
    run.runner.run_all()
    assert run.gateway.take() == [("fenced",)]
    assert run.coordinator.pending_ids == ()
    assert run.timers.pending == ()
    shutdown = Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
    assert sorted((a.reason.value, a.checkpoint_id or 0) for a in run.answers) == [
        (shutdown.value, 0),
        (shutdown.value, 1),
        (shutdown.value, 2),
    ]


def test_record_that_waits_for_its_turn_when_the_coordinator_is_fenced_is_not_written():
    run = Run(max_concurrent=2)
    run.trigger()
    run.trigger()
    run.acknowledge(1)
    run.acknowledge(2)
    DecisionLog(run.storage, run.paths).begin_attempt(run.clock.now())
    run.gateway.take()
    run.runner.run_all()
    assert run.gateway.take() == [("fenced",)]
    assert len(run.answers) == 2


@pytest.mark.parametrize("was_tried", [False, True])
def test_stop_that_fails_before_its_sources_know_of_it_fails_the_job_only_if_it_was_tried_before(was_tried):
    run = Run()
    run.trigger(SnapshotKind.SYNC_SAVEPOINT)
    if was_tried:
        run.coordinator.subtask_finished(READ)
        run.timers.advance(1)
    run.coordinator.abort_all(Reason.EXCEPTION, "a hook raised")
    newest = 2 if was_tried else 1
    causes = [f"checkpoint {newest} failed (exception): a hook raised"]
    assert run.gateway.causes == (causes if was_tried else [])
