"""Checkpoints start, complete, expire and are requested; and messages that do not count."""

from dataclasses import replace

from coordinator_setup import ALL, COUNT, COUNTS, READ, READS, Run
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.coordinator.requests import CheckpointSucceeded
from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.operators.coordinators import MissingEvents, OperatorCoordinator
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus
from penstock.runtime.snapshot.handles import InlineHandle
from penstock.runtime.snapshot.ids import SubtaskId


def test_sources_start_it_everybody_acknowledges_and_everybody_is_told_after_the_record():
    run = Run()
    run.trigger()
    assert run.gateway.take() == [("trigger", 1, READS)]
    assert run.acknowledge(1) == {MessageOutcome.ACCEPTED}
    assert run.gateway.take() == []
    assert run.log.replay().completed == ()
    run.runner.run_all()
    assert [record.checkpoint_id for record in run.log.replay().completed] == [1]
    assert run.gateway.take() == [("complete", 1, ALL)]
    [answer] = run.answers
    assert isinstance(answer, CheckpointSucceeded)
    assert run.coordinator.latest_completed == answer.checkpoint
    assert answer.checkpoint.operators["count"].subtasks.keys() == {0, 1}
    assert answer.checkpoint.operators["count"].max_parallelism == 128


def test_a_barrier_names_the_newest_completed_checkpoint():
    run = Run()
    run.trigger()
    run.complete(1)
    run.trigger()
    run.coordinator.decline(1, READ, 2)
    run.trigger()
    assert [(b.checkpoint_id, b.confirmed_id) for b in run.gateway.barriers] == [(1, -1), (2, 1), (3, 1)]


def test_a_full_checkpoint_builds_on_nothing_and_the_next_one_builds_on_it():
    run = Run()
    run.trigger()
    run.complete(1)
    run.trigger(full=True)
    run.complete(2)
    run.trigger()
    assert [(b.checkpoint_id, b.confirmed_id) for b in run.gateway.barriers] == [(1, -1), (2, -1), (3, 2)]


def test_an_answer_says_how_long_the_checkpoint_took_to_its_record():
    run = Run()
    run.trigger()
    run.timers.advance(2)
    run.acknowledge(1)
    run.timers.advance(0.5)
    run.runner.run_all()
    [answer] = run.answers
    [record] = run.coordinator.history.records()
    assert answer.duration == record.duration == 2.5


def test_metadata_say_how_long_the_checkpoint_took_to_its_last_acknowledgement():
    run = Run()
    run.timers.advance(100)
    run.trigger()
    run.timers.advance(2)
    run.acknowledge(1)
    run.timers.advance(0.5)
    run.runner.run_all()
    assert run.coordinator.latest_completed.statistics.duration == 2.0


def test_periodic_checkpoints_come_every_interval_and_wait_for_the_one_that_runs():
    run = Run()
    run.coordinator.start_periodic()
    run.timers.advance(9.9)
    assert run.gateway.take() == []
    run.timers.advance(0.1)
    assert run.gateway.take() == [("trigger", 1, READS)]
    run.timers.advance(35)
    assert run.gateway.take() == []
    assert run.coordinator.statistics().queued == 1
    run.complete(1)
    assert run.gateway.take() == [("complete", 1, ALL), ("trigger", 2, READS)]


def test_the_pause_counts_from_the_end_of_the_last_checkpoint():
    run = Run(min_pause=8)
    run.coordinator.start_periodic()
    run.timers.advance(10)
    run.timers.advance(5)
    run.complete(1)
    run.gateway.take()
    run.timers.advance(7.9)
    assert run.gateway.take() == []
    run.timers.advance(0.2)
    assert run.gateway.take() == [("trigger", 2, READS)]


def test_a_request_by_hand_waits_for_the_end_of_the_pause_an_urgent_one_does_not():
    run = Run(min_pause=8)
    run.trigger()
    run.complete(1)
    run.gateway.take()
    run.trigger()
    run.timers.advance(7.9)
    assert run.gateway.take() == []
    run.timers.advance(0.1)
    assert run.gateway.take() == [("trigger", 2, READS)]
    run.complete(2)
    run.gateway.take()
    run.trigger(urgent=True)
    assert run.gateway.take() == [("trigger", 3, READS)]


def test_request_for_which_there_is_no_room_is_answered_at_once():
    run = Run()
    for _ in range(1002):
        run.trigger()
    assert [answer.reason for answer in run.answers] == [Reason.TOO_MANY_CHECKPOINT_REQUESTS]
    assert run.coordinator.statistics().refused == 1


def test_after_stop_nothing_is_triggered_and_what_ran_is_given_up():
    run = Run()
    run.coordinator.start_periodic()
    run.timers.advance(10)
    run.gateway.take()
    run.coordinator.stop_periodic()
    assert run.gateway.take() == [("aborted", 1, ALL)]
    run.timers.advance(100)
    assert run.gateway.take() == []
    assert run.timers.pending == ()
    run.coordinator.start_periodic()
    run.timers.advance(10)
    assert run.gateway.take() == [("trigger", 2, READS)]


def test_a_timeout_gives_it_up_names_who_was_missing_and_deletes_what_came_in():
    run = Run(timeout=60)
    run.trigger()
    run.acknowledge(1, [READ, COUNT])
    run.gateway.take()
    assert len(run.state_files()) == 2
    run.timers.advance(60)
    assert run.gateway.take() == [("aborted", 1, ALL)]
    [answer] = run.answers
    assert answer.reason is Reason.CHECKPOINT_EXPIRED
    assert "count[1], read[1]" in answer.detail
    assert run.state_files() == []


def test_a_late_acknowledgement_of_a_dead_checkpoint_deletes_its_new_files_only():
    run = Run()
    run.trigger()
    run.complete(1)
    [base] = run.coordinator.latest_completed.operators["count"].subtasks[0].files()
    run.trigger()
    run.coordinator.decline(1, READ, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert run.acknowledge(2, [COUNT], older=(base,)) == {MessageOutcome.ENDED_CHECKPOINT}
    assert run.state_files() == ["1-1-count-0-0", "1-1-count-1-0", "1-1-read-0-0", "1-1-read-1-0"]
    assert run.coordinator.statistics().late_messages == 1


def test_a_repeated_acknowledgement_of_a_completed_checkpoint_deletes_nothing():
    run = Run()
    run.trigger()
    run.complete(1)
    assert run.acknowledge(1) == {MessageOutcome.ENDED_CHECKPOINT}
    assert len(run.state_files()) == 4


def test_messages_of_other_attempts_checkpoints_and_subtasks_change_nothing():
    run = Run()
    run.trigger()
    snapshot = run.snapshot(READ, 1)
    coordinator = run.coordinator
    assert coordinator.acknowledge(2, READ, 1, snapshot) is MessageOutcome.STALE_ATTEMPT
    assert coordinator.decline(0, READ, 1) is MessageOutcome.STALE_ATTEMPT
    assert len(run.state_files()) == 1
    assert coordinator.acknowledge(1, SubtaskId("nobody", 0), 1) is MessageOutcome.UNKNOWN_SENDER
    for never_started in (2, 99):
        assert coordinator.acknowledge(1, READ, never_started) is MessageOutcome.UNKNOWN_CHECKPOINT
        assert coordinator.decline(1, READ, never_started) is MessageOutcome.UNKNOWN_CHECKPOINT
    assert coordinator.acknowledge(1, READ, 1) is MessageOutcome.ACCEPTED
    assert coordinator.acknowledge(1, READ, 1, snapshot) is MessageOutcome.DUPLICATE
    assert coordinator.pending_ids == (1,)
    assert coordinator.statistics().stale_messages == 2


def test_files_that_come_from_an_unknown_subtask_or_for_an_unknown_checkpoint_are_deleted():
    run = Run()
    run.trigger()
    stranger = run.snapshot(SubtaskId("nobody", 0), 1)
    assert (
        run.coordinator.acknowledge(1, SubtaskId("nobody", 0), 1, stranger) is MessageOutcome.UNKNOWN_SENDER
    )
    assert run.acknowledge(2, [READ]) == {MessageOutcome.UNKNOWN_CHECKPOINT}
    assert run.state_files() == []


def test_every_request_is_answered_once_even_if_the_answer_asks_again():
    run = Run()
    answers = []

    def again(answer):
        answers.append(answer)
        if len(answers) < 3:
            run.coordinator.trigger(on_answer=again)

    run.coordinator.trigger(on_answer=again)
    for checkpoint_id in (1, 2, 3):
        run.coordinator.decline(1, READ, checkpoint_id)
    assert [a.checkpoint_id for a in answers] == [1, 2, 3]


def test_the_subtasks_that_the_oldest_checkpoint_waits_for_are_known_with_the_time_that_it_has_run():
    run = Run()
    assert run.coordinator.awaited_acknowledgements() is None
    run.trigger()
    run.timers.advance(2.5)
    run.acknowledge(1, ALL[1:])
    awaited = run.coordinator.awaited_acknowledgements()
    assert (awaited.checkpoint_id, awaited.seconds, awaited.subtasks) == (1, 2.5, {ALL[0]})
    run.acknowledge(1, ALL[:1])
    assert run.coordinator.awaited_acknowledgements() is None


def test_history_and_statistics_tell_sizes_durations_and_reasons():
    run = Run()
    run.timers.advance(100)
    run.trigger()
    run.timers.advance(2.5)
    run.complete(1)
    run.trigger()
    run.coordinator.decline(1, READ, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    done, failed = run.coordinator.history.records()
    assert (done.status, done.duration, done.acknowledged, done.written_bytes) == (
        CheckpointStatus.COMPLETED,
        2.5,
        4,
        20,
    )
    assert done.in_flight_bytes == 8
    assert (
        done.size
        == sum(h.size for h in run.coordinator.latest_completed.files())
        - run.coordinator.latest_completed.metadata.size
    )
    assert (failed.status, failed.failure, failed.detail) == (
        CheckpointStatus.FAILED,
        Reason.CHECKPOINT_DECLINED,
        "read[0]: disk full",
    )
    statistics = run.coordinator.statistics()
    assert (statistics.triggered, statistics.completed, statistics.failed) == (2, 1, 1)
    assert (statistics.latest_completed_id, statistics.latest_duration) == (1, 2.5)


class Listening(OperatorCoordinator):
    """Waits for one event of `count[0]` in each checkpoint."""

    def __init__(self):
        self.has_event = False
        self.acknowledged = []

    def handle_event(self, subtask, event):
        self.has_event = True

    def checkpoint(self, checkpoint_id, answer):
        answer.complete(b"")

    def subtask_acknowledged(self, checkpoint_id, subtask, events):
        self.acknowledged.append((checkpoint_id, subtask, events))

    def missing_events(self, checkpoint_id):
        return () if self.has_event else (MissingEvents(0, 0, 1),)

    def recorded_state(self, checkpoint_id):
        return b"with the event"


def listening():
    coordinator, runner = Listening(), ManualAsyncRunner()
    holder = OperatorCoordinatorHolder("count", lambda: 2, lambda _: coordinator, None, runner, runner.run)
    coordinators = OperatorCoordinators([holder])
    return Run(coordinators=coordinators), coordinator, coordinators


def test_operator_coordinator_learns_how_many_events_a_subtask_had_sent_before_its_acknowledgement():
    run, coordinator, _ = listening()
    run.trigger()
    for subtask, events in zip(COUNTS, (2, 3), strict=True):
        snapshot = replace(run.snapshot(subtask, 1), events={"count": events})
        run.coordinator.acknowledge(1, subtask, 1, snapshot)
    assert coordinator.acknowledged == [(1, 0, 2), (1, 1, 3)]


def test_checkpoint_is_completed_by_the_event_that_its_coordinator_still_misses():
    run, _, coordinators = listening()
    run.trigger()
    run.complete(1)
    assert run.coordinator.pending_ids == (1,)
    coordinators.handle_event("count", 0, "event")
    run.runner.run_all()
    completed = run.coordinator.latest_completed
    assert completed.checkpoint_id == 1
    assert completed.operators["count"].coordinator == InlineHandle(b"with the event")
