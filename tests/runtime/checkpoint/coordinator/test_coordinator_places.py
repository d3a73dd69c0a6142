"""The first step of a trigger: without a place that can be written no barrier is sent."""

import pytest
from coordinator_setup import COUNT, READS, Run

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.location import PastAttemptError
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus


class Places:
    """Prepares places, or refuses."""

    def __init__(self):
        self.refuses, self.newest, self.free_from, self.asked = False, 1, 1, []

    def __call__(self, checkpoint_id, attempt):
        self.asked.append((checkpoint_id, attempt))
        if self.refuses:
            raise StorageError("can't write /saved: it is read-only")
        if attempt < self.newest:
            raise PastAttemptError("ids/1 is not for this attempt: attempt 2 of the job has begun")
        return max(checkpoint_id, self.free_from)


def running(**settings):
    places = Places()
    return Run(initialize_location=places, **settings), places


def test_a_checkpoint_starts_when_its_place_is_prepared():
    run, places = running()
    run.trigger()
    assert run.coordinator.is_triggering
    assert run.gateway.take() == []
    run.runner.run_all()
    assert places.asked == [(1, 1)]
    assert run.gateway.take() == [("trigger", 1, READS)]
    assert not run.coordinator.is_triggering


@pytest.mark.parametrize("kind", list(SnapshotKind))
def test_without_a_place_no_barrier_is_sent_and_nobody_hears_of_it(kind):
    run, places = running(tolerable_failures=5)
    places.refuses = True
    run.trigger(kind)
    run.runner.run_all()
    [answer] = run.answers
    assert (answer.reason, answer.checkpoint_id) == (Reason.TRIGGER_CHECKPOINT_FAILURE, None)
    assert answer.detail == "its location can't be written: can't write /saved: it is read-only"
    assert run.gateway.said == []
    assert run.gateway.barriers == []
    assert run.coordinator.pending_ids == ()
    places.refuses = False
    run.trigger()
    run.runner.run_all()
    assert run.gateway.take() == [("trigger", 1, READS)], "the next one gets the id"


def test_it_is_in_the_history_and_counts_as_a_failed_checkpoint():
    run, places = running()
    places.refuses = True
    run.trigger()
    run.runner.run_all()
    places.refuses = False
    run.trigger()
    run.runner.run_all()
    run.complete(1)
    refused, completed = run.coordinator.history.records()
    assert (refused.checkpoint_id, refused.status) == (1, CheckpointStatus.FAILED)
    assert (refused.failure, refused.attempt) == (Reason.TRIGGER_CHECKPOINT_FAILURE, 1)
    assert "it is read-only" in refused.detail
    assert (completed.checkpoint_id, completed.status) == (1, CheckpointStatus.COMPLETED)
    seen = run.coordinator.statistics()
    assert (seen.triggered, seen.completed, seen.failed, seen.refused) == (2, 1, 1, 1)


def test_a_storage_that_stays_away_fails_the_job_as_other_failed_checkpoints_do():
    run, places = running(tolerable_failures=1)
    places.refuses = True
    run.trigger()
    run.runner.run_all()
    assert run.gateway.take() == []
    run.trigger()
    run.runner.run_all()
    assert run.gateway.take() == [("fail_job",)]
    assert "it is read-only" in run.gateway.causes[0]


def test_savepoints_without_a_place_never_fail_the_job():
    run, places = running(tolerable_failures=0)
    places.refuses = True
    for kind in (SnapshotKind.SAVEPOINT, SnapshotKind.SYNC_SAVEPOINT):
        run.trigger(kind)
        run.runner.run_all()
    assert len(run.answers) == 2
    assert run.gateway.take() == []


def test_a_storage_that_does_not_answer_costs_the_timeout_and_no_more_threads():
    run, places = running(timeout=60, tolerable_failures=9)
    run.trigger()
    run.timers.advance(60)
    assert "memory: did not answer within 60 s" in run.answers[0].detail
    run.trigger()
    assert "memory: has not answered the previous write check yet" in run.answers[1].detail
    assert run.runner.waiting == 1
    run.runner.run_all()
    assert run.gateway.take() == [], "the place is ready too late"
    run.trigger()
    run.runner.run_all()
    assert len(places.asked) == 2
    assert run.gateway.take() == [("trigger", 1, READS)]


def test_a_prepared_place_ends_its_timeout():
    run, _ = running(timeout=60)
    run.trigger()
    run.runner.run_all()
    run.complete(1)
    run.timers.advance(120)
    [answer] = run.answers
    assert answer.checkpoint.checkpoint_id == 1


def test_a_request_whose_place_fails_after_the_end_of_the_attempt_is_answered():
    run, places = running()
    places.refuses = True
    run.trigger()
    run.coordinator.end_attempt(Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, "the job has ended")
    run.runner.run_all()
    [answer] = run.answers
    assert (answer.reason, answer.detail) == (Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, "the job has ended")
    assert run.coordinator.history.records() == ()
    assert not run.coordinator.is_triggering


def test_a_part_of_the_job_that_restarts_meanwhile_has_another_place():
    run, places = running()
    run.trigger()
    run.log.begin_attempt(run.clock.now())
    store = CompletedCheckpointStore(1, may_delete=run.paths.may_delete)
    run.coordinator.begin_region(2, store, 40)
    run.runner.run_all()
    assert places.asked == [(1, 1), (41, 2)]
    assert run.gateway.take() == [("trigger", 41, READS)]


def test_a_subtask_that_fails_meanwhile_does_not_hold_the_start_up():
    run, _ = running()
    run.trigger()
    run.coordinator.subtask_failed(COUNT, "killed")
    run.runner.run_all()
    assert run.gateway.take() == [("trigger", 1, READS)], "the job decides what becomes of the attempt"


def test_a_storage_that_hangs_counts_as_one_failed_checkpoint_however_many_are_refused():
    run, _ = running(timeout=60, tolerable_failures=1)
    run.trigger()
    run.timers.advance(60)
    for _ in range(5):
        run.trigger()
    assert [answer.reason for answer in run.answers] == [Reason.TRIGGER_CHECKPOINT_FAILURE] * 6
    assert run.gateway.take() == [], "the job does not fail"
    assert run.coordinator.statistics().failures_in_a_row == 1


def test_a_checkpoint_gets_the_id_that_its_place_gives():
    run, places = running()
    places.free_from = 7
    for _ in range(2):
        run.trigger()
        run.runner.run_all()
        run.complete(run.coordinator.pending_ids[0])
    assert places.asked == [(1, 1), (8, 1)]
    assert [answer.checkpoint.checkpoint_id for answer in run.answers] == [7, 8]


def test_a_place_that_fails_while_a_part_of_the_job_restarts_counts_for_nothing():
    """A new attempt of that part may be in the log before the coordinator knows it."""
    run, places = running(tolerable_failures=0)
    places.refuses = True
    run.trigger()
    run.planner.leave_out({COUNT})
    run.runner.run_all()
    [answer] = run.answers
    assert answer.reason is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    assert run.gateway.take() == []


@pytest.mark.parametrize("stops", ["stop_periodic", "end_attempt"])
def test_a_start_without_a_place_yet_ends_with_checkpointing(stops):
    run, _ = running()
    run.trigger()
    getattr(run.coordinator, stops)()
    assert len(run.answers) == 1
    assert not run.coordinator.is_triggering
    run.runner.run_all()
    assert run.gateway.take() == []


def test_a_request_waits_for_the_place_of_one_that_was_refused_meanwhile():
    run, places = running(timeout=60)
    run.trigger()
    run.coordinator.stop_periodic()
    run.trigger(SnapshotKind.SYNC_SAVEPOINT)
    assert run.runner.waiting == 1
    run.runner.run_all()
    assert places.asked == [(1, 1), (1, 1)]
    assert [barrier.options.kind for barrier in run.gateway.barriers] == [SnapshotKind.SYNC_SAVEPOINT]


def test_a_request_that_waits_for_the_place_of_another_is_refused_when_that_hangs():
    run, _ = running(timeout=60)
    run.trigger()
    run.coordinator.stop_periodic()
    run.trigger(SnapshotKind.SYNC_SAVEPOINT)
    run.timers.advance(60)
    assert "has not answered the previous write check yet" in run.answers[1].detail
    run.runner.run_all()
    assert run.gateway.take() == []


@pytest.mark.parametrize("tolerable", [None, 0])
def test_a_job_master_that_gets_no_id_because_it_is_past_leaves_and_fails_nothing(tolerable):
    """A coordinator that tolerates any number of failed checkpoints kept its processes for ever."""
    run, places = running(tolerable_failures=tolerable)
    run.coordinator.start_periodic()
    places.newest = 2
    run.trigger()
    run.trigger()
    run.runner.run_all()
    assert run.gateway.take() == [("fenced",)]
    assert [answer.reason for answer in run.answers] == [Reason.CHECKPOINT_COORDINATOR_SHUTDOWN] * 2
    assert run.timers.pending == ()
    assert not run.coordinator.is_triggering


def test_nobody_leaves_because_of_an_attempt_that_a_region_of_the_same_job_master_has_begun():
    run, places = running(tolerable_failures=None)
    run.trigger()
    places.newest = 2
    run.coordinator.begin_region(2, CompletedCheckpointStore(), -1)
    run.runner.run_all()
    assert places.asked == [(1, 1), (1, 2)]
    assert [said[0] for said in run.gateway.take()] == ["trigger"]


def test_target_of_a_savepoint_is_not_tried_where_nothing_can_try_it():
    run, called = Run(), []
    run.coordinator.try_target(
        SnapshotKind.SAVEPOINT, "/saved", lambda: called.append("tried"), called.append
    )
    assert called == ["tried"]


def test_savepoint_whose_target_can_not_be_written_counts_as_refused():
    def refuse(url):
        raise StorageError(f"can't write {url}: it is read-only")

    run, called = Run(targets=refuse), []
    run.coordinator.try_target(
        SnapshotKind.SAVEPOINT, "/saved", lambda: called.append("tried"), called.append
    )
    assert called == []
    run.runner.run_all()
    [answer] = called
    assert "can't write /saved: it is read-only" in answer.detail
    assert run.coordinator.statistics().refused == 1


def test_savepoint_whose_target_is_being_tried_is_refused_when_checkpointing_stops():
    run, called = Run(targets=lambda url: None), []
    run.coordinator.try_target(
        SnapshotKind.SAVEPOINT, "/saved", lambda: called.append("tried"), called.append
    )
    run.coordinator.end_attempt(Reason.JOB_FAILURE, "killed")
    [answer] = called
    assert (answer.reason, answer.detail) == (Reason.JOB_FAILURE, "killed")
    run.runner.run_all()
    assert len(called) == 1


def test_caller_that_waits_for_the_place_of_a_checkpoint_is_called_when_it_is_prepared():
    run, called = running()[0], []
    run.coordinator.when_no_place_is_awaited(lambda: called.append("before"))
    run.trigger()
    run.coordinator.when_no_place_is_awaited(lambda: called.append("after"))
    assert called == ["before"]
    run.runner.run_all()
    assert called == ["before", "after"]
