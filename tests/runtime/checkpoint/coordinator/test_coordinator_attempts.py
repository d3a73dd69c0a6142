"""Checkpoints and attempts: subtasks that finish, attempts that end, ids that go on."""

import pytest
from coordinator_setup import ALL, COUNT, COUNTS, READ, READS, Run

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason


def test_whoever_reaches_the_end_of_its_data_is_told_of_the_checkpoint_that_it_still_owes():
    run = Run(unaligned=True)
    run.trigger()
    run.gateway.take()
    run.coordinator.data_ended(READ)
    assert run.gateway.take() == [], "sources are told anyway"
    run.acknowledge(1, [COUNTS[1]])
    run.coordinator.data_ended(COUNTS[1])
    assert run.gateway.take() == [], "it has taken it"
    run.coordinator.data_ended(COUNT)
    assert run.gateway.take() == [("trigger", 1, (COUNT,))]
    assert run.gateway.barriers[-1] == run.gateway.barriers[0]
    run.coordinator.decline(1, READ, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    run.gateway.take()
    run.trigger()
    assert run.gateway.take() == [("trigger", 2, ALL)], "from now on all of them"


def test_end_of_data_is_forgotten_when_a_new_attempt_begins():
    run = Run()
    run.coordinator.data_ended(COUNT)
    run.coordinator.end_attempt()
    run.begin(2)
    run.coordinator.started()
    run.gateway.take()
    run.trigger()
    assert run.gateway.take() == [("trigger", 1, READS)]


def test_request_before_the_first_attempt_is_refused():
    run = Run(begin=False)
    run.trigger()
    [answer] = run.answers
    assert (answer.reason, answer.detail) == (Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, "the job is not running")


def test_request_whose_place_is_being_prepared_when_the_job_restarts_is_refused():
    run = Run(initialize_location=lambda checkpoint_id, attempt: checkpoint_id)
    run.trigger()
    assert run.coordinator.is_triggering
    run.coordinator.end_attempt(detail="the job restarts")
    run.begin(2)
    [answer] = run.answers
    assert (answer.reason, answer.detail) == (Reason.JOB_FAILURE, "the job restarts")
    assert not run.coordinator.is_triggering
    run.coordinator.started()
    run.runner.run_all()
    assert run.gateway.take() == [], "the place is ready too late"
    run.trigger()
    run.runner.run_all()
    assert run.gateway.take() == [("trigger", 1, READS)]


def test_files_that_earlier_attempts_have_left_behind_are_deleted():
    run = Run()
    run.storage.put("job/shared/1-9-count-0-0", b"left")
    run.coordinator.end_attempt()
    store = CompletedCheckpointStore(1, may_delete=run.paths.may_delete)
    run.coordinator.begin_attempt(2, store, -1, ["job/shared/1-9-count-0-0"])
    assert run.state_files() == []


def test_subtasks_that_fail_while_others_run_begin_with_ids_that_were_never_given_out():
    run = Run()
    store = CompletedCheckpointStore(1, may_delete=run.paths.may_delete)
    run.log.begin_attempt(run.clock.now())
    run.coordinator.begin_region(2, store, 40)
    run.trigger()
    assert run.gateway.take() == [("trigger", 41, READS)]
    run.attempt = 2
    run.complete(41)
    assert store.latest.checkpoint_id == 41


def test_nothing_is_triggered_before_everything_runs():
    run = Run(start=False)
    run.trigger()
    [answer] = run.answers
    assert answer.reason is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    assert "read[0], read[1], count[0], count[1]" in answer.detail
    assert run.coordinator.statistics().refused == 1
    run.coordinator.started()
    run.trigger()
    assert run.coordinator.statistics().refused == 1
    assert run.gateway.take() == [("trigger", 1, READS)]


def test_finished_subtasks_take_no_part_and_their_last_state_is_carried_on():
    run = Run()
    run.trigger()
    run.complete(1)
    first = run.coordinator.latest_completed.operators["read"].subtasks[1]
    run.coordinator.subtask_finished(READS[1])
    run.gateway.take()
    for checkpoint_id in (2, 3):
        run.trigger()
        assert run.gateway.take() == [("trigger", checkpoint_id, (READ,))]
        run.complete(checkpoint_id, subtasks=(READ, *COUNTS))
        assert run.gateway.take() == [("complete", checkpoint_id, (READ, *COUNTS))]
        assert run.coordinator.latest_completed.operators["read"].subtasks[1] == first
    assert "1-1-read-1-0" in run.state_files()
    assert "1-1-read-0-0" not in run.state_files()


def test_a_subtask_whose_senders_have_all_finished_is_told_to_start_by_itself():
    run = Run()
    for subtask in READS:
        run.coordinator.subtask_finished(subtask)
    run.trigger()
    assert run.gateway.take() == [("trigger", 1, COUNTS)]


def test_a_checkpoint_that_waits_for_a_subtask_that_finishes_is_taken_anew_without_it():
    run = Run()
    run.trigger()
    run.acknowledge(1, [READ])
    run.gateway.take()
    run.coordinator.subtask_finished(READS[1])
    assert run.gateway.take() == [("aborted", 1, (READ, *COUNTS))]
    assert run.answers == []
    run.timers.advance(1)
    assert run.gateway.take() == [("trigger", 2, (READ,))]
    run.complete(2, subtasks=(READ, *COUNTS))
    [answer] = run.answers
    assert answer.checkpoint.checkpoint_id == 2
    assert run.coordinator.history.records()[0].failure is Reason.CHECKPOINT_DECLINED_TASK_CLOSING


def test_a_subtask_that_finishes_after_its_acknowledgement_breaks_nothing():
    run = Run()
    run.trigger()
    run.acknowledge(1, [READ])
    run.coordinator.subtask_finished(READ)
    run.gateway.take()
    run.complete(1, subtasks=(READS[1], *COUNTS))
    assert run.gateway.take() == [("complete", 1, (READS[1], *COUNTS))]
    assert run.coordinator.latest_completed.operators["read"].subtasks.keys() == {0, 1}


def test_checkpoint_is_taken_anew_as_often_as_subtasks_finish():
    run = Run()
    run.trigger()
    for checkpoint_id, subtask in ((1, READ), (2, READS[1])):
        run.coordinator.subtask_finished(subtask)
        run.gateway.take()
        run.timers.advance(0.09)
        assert run.coordinator.pending_ids == (), "others finish at the same time"
        run.timers.advance(0.02)
        assert run.coordinator.pending_ids == (checkpoint_id + 1,)
    run.complete(3, subtasks=COUNTS)
    assert [answer.checkpoint.checkpoint_id for answer in run.answers] == [3]


def test_retry_that_was_refused_with_all_others_holds_no_later_one_back():
    run = Run()
    run.trigger()
    run.coordinator.subtask_finished(READ)
    run.coordinator.stop_periodic()
    run.trigger()
    run.coordinator.subtask_finished(READS[1])
    run.timers.advance(1)
    assert run.coordinator.pending_ids == (3,)


def test_retry_waits_for_no_pause():
    run = Run(min_pause=1000, max_concurrent=2)
    run.trigger(SnapshotKind.SAVEPOINT, forced=False)
    run.trigger()
    run.complete(2)
    run.coordinator.subtask_finished(READ)
    run.timers.advance(1)
    assert run.coordinator.pending_ids == (3,)


def test_hundreds_of_waiting_requests_are_refused_when_all_subtasks_have_finished():
    run = Run()
    for _ in range(500):
        run.trigger()
    for subtask in ALL:
        run.coordinator.subtask_finished(subtask)
    run.timers.advance(1)
    assert [answer.reason for answer in run.answers] == [Reason.NOT_ALL_REQUIRED_TASKS_RUNNING] * 500
    assert run.coordinator.statistics().refused == 500
    assert not run.coordinator.is_triggering


def test_a_retry_that_waits_is_answered_when_the_attempt_ends():
    run = Run()
    run.trigger()
    run.coordinator.subtask_finished(READ)
    run.coordinator.end_attempt(Reason.JOB_FAILURE, "read[1] failed")
    assert [a.reason for a in run.answers] == [Reason.JOB_FAILURE]
    assert run.timers.pending == ()


@pytest.mark.parametrize("kind", [SnapshotKind.SYNC_SAVEPOINT, SnapshotKind.SAVEPOINT])
def test_a_stop_that_can_not_be_tried_again_fails_the_job_as_sources_may_have_ended(kind: SnapshotKind):
    run = Run()
    run.trigger(kind)
    run.coordinator.subtask_finished(READ)
    run.gateway.take()
    for subtask in ALL:
        run.coordinator.subtask_finished(subtask)
    run.timers.advance(1)
    assert [(a.reason, a.checkpoint_id) for a in run.answers] == [(Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, 1)]
    assert run.gateway.take() == ([("fail_job",)] if kind is SnapshotKind.SYNC_SAVEPOINT else [])
    [answer] = run.answers
    why = f"not_all_required_tasks_running: {answer.detail}"
    cause = f"checkpoint 1 was aborted and was not retried ({why})"
    assert run.gateway.causes == ([cause] if kind is SnapshotKind.SYNC_SAVEPOINT else [])


def test_the_end_of_an_attempt_gives_everything_up_without_telling_subtasks_that_stop():
    run = Run()
    run.coordinator.start_periodic()
    run.trigger()
    run.trigger()
    run.acknowledge(1, READS)
    run.gateway.take()
    run.coordinator.end_attempt(Reason.JOB_FAILURE, "count[0] failed")
    assert run.gateway.take() == []
    assert [a.reason for a in run.answers] == [Reason.JOB_FAILURE] * 2
    assert run.state_files() == []
    assert run.timers.pending == ()


def test_a_record_that_is_being_written_when_the_attempt_ends_still_counts():
    run = Run()
    run.trigger()
    run.acknowledge(1)
    told = []
    run.coordinator.end_attempt()
    run.coordinator.when_idle(lambda: told.append(run.coordinator.latest_completed.checkpoint_id))
    assert told == []
    run.gateway.take()
    run.runner.run_all()
    assert told == [1]
    assert run.gateway.take() == []
    assert isinstance(run.answers[0], CheckpointSucceeded)


def test_ids_go_on_growing_in_the_next_attempt():
    run = Run()
    run.trigger()
    run.coordinator.end_attempt()
    run.log.begin_attempt(run.clock.now())
    run.begin(2)
    run.coordinator.started()
    run.trigger()
    assert run.gateway.barriers[-1].checkpoint_id == 2
    run.coordinator.end_attempt()
    run.begin(3, highest=40)
    run.coordinator.started()
    run.trigger()
    assert run.gateway.barriers[-1].checkpoint_id == 41
