"""The coordinator with the real storage, log and store; time and background work are moved by hand."""

from dataclasses import dataclass, field

import pytest

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator_files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator_history import CheckpointStatus
from penstock.runtime.checkpoint.coordinator_messages import MessageOutcome
from penstock.runtime.checkpoint.coordinator_parts import CoordinatorParts
from penstock.runtime.checkpoint.coordinator_plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator_requests import CheckpointCompleted, CheckpointFailed
from penstock.runtime.checkpoint.decision_log import DecisionLog
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.checkpoint.finalize import finalize
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.checkpoint.metadata import write_state_file
from penstock.runtime.checkpoint.paths import SnapshotPaths
from penstock.runtime.checkpoint.snapshot import (
    ChannelStateHandle,
    CheckpointMetrics,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskId,
    SubtaskSnapshot,
)
from penstock.runtime.errors import StorageError
from penstock.runtime.graph.job_graph import (
    Partitioner,
    Partitioning,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimers
from penstock.runtime.testing.small_graphs import read_and_count

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)
READS = (READ, SubtaskId("read", 1))
COUNTS = (COUNT, SubtaskId("count", 1))
ALL = (*READS, *COUNTS)


def word_count():
    """Two sources that send by key to two counters."""
    return read_and_count(2, 2, Partitioner(Partitioning.KEY_GROUP, len), keyed=True)


@dataclass
class Gateway:
    """Records what the coordinator says."""

    said: list = field(default_factory=list)
    barriers: list = field(default_factory=list)
    causes: list = field(default_factory=list)

    def trigger(self, subtasks, barrier):
        self.said.append(("trigger", barrier.checkpoint_id, tuple(subtasks)))
        self.barriers.append(barrier)

    def notify_complete(self, subtasks, checkpoint_id):
        self.said.append(("complete", checkpoint_id, tuple(subtasks)))

    def notify_aborted(self, subtasks, checkpoint_id):
        self.said.append(("aborted", checkpoint_id, tuple(subtasks)))

    def fail_job(self, cause):
        self.said.append(("fail_job",))
        self.causes.append(cause)

    def fenced(self):
        self.said.append(("fenced",))

    def take(self):
        said, self.said = self.said, []
        return said


class FlakyStorage(MemoryStorage):
    """Fails the puts whose path holds `broken`."""

    broken = None

    def put(self, path, data, *, create=False):
        if self.broken is not None and self.broken in path:
            raise StorageError(f"no answer for {path}")
        super().put(path, data, create=create)


class Run:
    """A coordinator in the midst of a running attempt 1."""

    def __init__(self, *, start=True, **settings):
        self.config = Checkpointing(**{"every": 10, **settings})
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage = FlakyStorage()
        self.paths = SnapshotPaths("job")
        self.log = DecisionLog(self.storage, self.paths)
        self.gateway = Gateway()
        self.answers = []
        self.attempt = 1
        self.log.begin_attempt(self.clock.now())
        self.coordinator = CheckpointCoordinator(
            CoordinatorParts(
                self.config,
                CheckpointPlanner(word_count()),
                self.gateway,
                CheckpointFiles(self.storage, self.paths, self.runner),
                self.write,
                clock=self.clock,
                timers=self.timers,
                runner=self.runner,
            )
        )
        self.begin(1)
        if start:
            self.coordinator.started()

    def write(self, checkpoint):
        return finalize(self.storage, self.paths, self.log, checkpoint, retained=self.config.retain)

    def begin(self, attempt, highest=-1):
        self.attempt = attempt
        store = CompletedCheckpointStore(self.config.retain, may_delete=self.paths.may_delete)
        self.coordinator.begin_attempt(attempt, store, highest)

    def trigger(self, kind=SnapshotKind.CHECKPOINT, **how):
        self.coordinator.trigger(kind, on_answer=self.answers.append, **how)

    def snapshot(self, subtask, checkpoint_id, *, older=(), in_flight=False):
        """State of a subtask: one new file, behind files of older checkpoints, and what was in flight."""
        path = self.paths.shared_file(
            checkpoint_id=checkpoint_id,
            attempt=self.attempt,
            operator_id=subtask.vertex,
            subtask=subtask.index,
            number=0,
        )
        new = write_state_file(self.storage, path, f"{subtask} {checkpoint_id}".encode())
        keyed = KeyedStateHandle(KeyGroupRange(0, 63), (*older, new), 1)
        snapshot = SubtaskSnapshot({subtask.vertex: OperatorSubtaskState(keyed=(keyed,))})
        if not in_flight:
            return snapshot
        path = self.paths.channel_state(
            checkpoint_id=checkpoint_id, attempt=self.attempt, vertex=subtask.vertex, subtask=subtask.index
        )
        return snapshot.with_channels(ChannelStateHandle(write_state_file(self.storage, path, b"rows"), 1))

    def acknowledge(self, checkpoint_id, subtasks=ALL, **how):
        outcomes = set()
        for subtask in subtasks:
            snapshot = self.snapshot(subtask, checkpoint_id, **how)
            metrics = CheckpointMetrics(written_bytes=5, in_flight_bytes=2)
            outcomes.add(
                self.coordinator.acknowledge(self.attempt, subtask, checkpoint_id, snapshot, metrics)
            )
        return outcomes

    def complete(self, checkpoint_id, **how):
        self.acknowledge(checkpoint_id, **how)
        self.runner.run_all()

    def state_files(self):
        self.runner.run_all()
        return [path.removeprefix("job/shared/") for path in self.storage.list("job/shared/")]

    def channel_files(self):
        self.runner.run_all()
        return [path.removeprefix("job/") for path in self.storage.list("job/") if "/channels-" in path]


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
    assert isinstance(answer, CheckpointCompleted)
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
    assert coordinator.acknowledge(1, SubtaskId("nobody", 0), 1) is MessageOutcome.UNKNOWN_SUBTASK
    assert coordinator.acknowledge(1, READ, 99) is MessageOutcome.UNKNOWN_CHECKPOINT
    assert coordinator.decline(1, READ, 99) is MessageOutcome.UNKNOWN_CHECKPOINT
    assert coordinator.acknowledge(1, READ, 1) is MessageOutcome.ACCEPTED
    assert coordinator.acknowledge(1, READ, 1, snapshot) is MessageOutcome.DUPLICATE
    assert coordinator.pending_ids == (1,)
    assert coordinator.statistics().stale_messages == 2


def test_a_completed_checkpoint_subsumes_older_ones_but_no_savepoint():
    run = Run(max_concurrent=5)
    run.trigger()
    run.trigger(SnapshotKind.SAVEPOINT)
    run.trigger()
    run.acknowledge(1, READS)
    run.gateway.take()
    run.complete(3)
    assert run.gateway.take() == [("complete", 3, ALL), ("aborted", 1, ALL)]
    assert run.coordinator.pending_ids == (2,)
    assert [a.reason for a in run.answers if isinstance(a, CheckpointFailed)] == [Reason.CHECKPOINT_SUBSUMED]
    run.complete(2)
    assert run.coordinator.latest_completed.checkpoint_id == 3
    assert run.log.replay().newest.checkpoint_id == 3


def test_the_files_of_a_base_stay_until_the_checkpoint_that_builds_on_it_has_ended():
    run = Run(max_concurrent=2)
    run.trigger()
    run.complete(1)
    run.trigger(SnapshotKind.SAVEPOINT)
    run.trigger()
    assert [b.confirmed_id for b in run.gateway.barriers] == [-1, 1, 1]
    run.complete(3)
    assert len([f for f in run.state_files() if f.startswith("1-1-")]) == 4
    run.coordinator.decline(1, READ, 2)
    assert [f for f in run.state_files() if f.startswith("1-1-")] == []
    assert len(run.state_files()) == 4


def test_files_of_replaced_checkpoints_go_and_those_that_are_named_again_stay():
    run = Run()
    run.trigger()
    run.complete(1)
    [base] = run.coordinator.latest_completed.operators["count"].subtasks[0].files()
    run.trigger()
    run.acknowledge(2, [COUNT], older=(base,))
    run.complete(2, subtasks=(SubtaskId("count", 1), *READS))
    assert run.state_files() == [
        "1-1-count-0-0",
        "1-2-count-0-0",
        "1-2-count-1-0",
        "1-2-read-0-0",
        "1-2-read-1-0",
    ]


def test_in_flight_data_goes_with_its_checkpoint():
    run = Run(unaligned=True)
    for checkpoint_id in (1, 2):
        run.trigger()
        assert run.gateway.barriers[-1].options.unaligned
        run.complete(checkpoint_id, in_flight=True)
        folder = f"chk-{checkpoint_id}-1"
        assert run.channel_files() == [
            f"{folder}/channels-{vertex}-{index}" for vertex in ("count", "read") for index in (0, 1)
        ]
    run.trigger()
    run.acknowledge(3, [READ, COUNT], in_flight=True)
    assert "chk-3-1/channels-read-0" in run.channel_files()
    run.coordinator.decline(1, READS[1], 3, Reason.CHECKPOINT_DECLINED, "disk full")
    run.acknowledge(3, [SubtaskId("count", 1)], in_flight=True)
    assert all(path.startswith("chk-2-1/") for path in run.channel_files()), "late ones go, too"
    assert len(run.channel_files()) == 4


def test_savepoints_of_a_job_with_unaligned_checkpoints_are_aligned():
    run = Run(unaligned=True)
    run.trigger(SnapshotKind.SAVEPOINT)
    assert not run.gateway.barriers[-1].options.may_overtake


def test_what_was_in_flight_in_a_finished_subtask_has_been_consumed_and_is_not_carried_on():
    run = Run(unaligned=True)
    run.trigger()
    run.complete(1, in_flight=True)
    before = run.coordinator.latest_completed.operators["read"].subtasks[1]
    run.coordinator.subtask_finished(READS[1])
    run.trigger()
    run.complete(2, subtasks=(READ, *COUNTS), in_flight=True)
    reads = run.coordinator.latest_completed.operators["read"].subtasks
    assert reads[1].keyed == before.keyed
    assert (reads[0].channels is None, reads[1].channels) == (False, None)
    assert "chk-1-1/channels-read-1" not in run.channel_files()


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


def test_too_many_failures_in_a_row_fail_the_job_once():
    run = Run(tolerable_failures=1)
    run.trigger()
    run.coordinator.decline(1, READ, 1, Reason.CHECKPOINT_DECLINED, "disk full")
    assert ("fail_job",) not in run.gateway.take()
    run.trigger()
    run.coordinator.decline(1, COUNT, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    assert run.gateway.take()[-2:] == [("aborted", 2, ALL), ("fail_job",)]
    assert run.gateway.causes == ["checkpoint 2 failed (checkpoint_declined): count[0]: disk full"]


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
    assert run.coordinator.history()[0].status is CheckpointStatus.FINALISING
    assert run.coordinator.decline(1, READ, 1) is MessageOutcome.DUPLICATE
    run.timers.advance(1000)
    run.runner.run_all()
    assert isinstance(run.answers[0], CheckpointCompleted)


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


def test_nothing_is_triggered_before_everything_runs():
    run = Run(start=False)
    run.trigger()
    [answer] = run.answers
    assert answer.reason is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    assert "read[0], read[1], count[0], count[1]" in answer.detail
    run.coordinator.started()
    run.trigger()
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
    assert run.coordinator.history()[0].failure is Reason.CHECKPOINT_DECLINED_TASK_CLOSING


def test_a_subtask_that_finishes_after_its_acknowledgement_breaks_nothing():
    run = Run()
    run.trigger()
    run.acknowledge(1, [READ])
    run.coordinator.subtask_finished(READ)
    run.gateway.take()
    run.complete(1, subtasks=(READS[1], *COUNTS))
    assert run.gateway.take() == [("complete", 1, (READS[1], *COUNTS))]
    assert run.coordinator.latest_completed.operators["read"].subtasks.keys() == {0, 1}


def test_a_retry_that_waits_is_answered_when_the_attempt_ends():
    run = Run()
    run.trigger()
    run.coordinator.subtask_finished(READ)
    run.coordinator.end_attempt(Reason.JOB_FAILURE, "read[1] failed")
    assert [a.reason for a in run.answers] == [Reason.JOB_FAILURE]
    assert run.timers.pending == ()


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
    assert isinstance(run.answers[0], CheckpointCompleted)


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


def test_history_and_statistics_tell_sizes_durations_and_reasons():
    run = Run()
    run.trigger()
    run.timers.advance(2.5)
    run.complete(1)
    run.trigger()
    run.coordinator.decline(1, READ, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    done, failed = run.coordinator.history()
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


@pytest.mark.parametrize("state", ["finished", "cancelled"])
def test_the_end_of_the_job_names_the_files_that_are_not_kept(state):
    run = Run()
    run.trigger()
    run.complete(1)
    assert len(run.coordinator.end_job(state)) == 5
    assert run.coordinator.latest_completed is None


def test_after_a_failure_checkpoints_stay_by_default():
    run = Run()
    run.trigger()
    run.complete(1)
    assert run.coordinator.end_job("failed") == ()


def test_list_state_of_a_subtask_without_files_is_kept_too():
    run = Run()
    run.trigger()
    handle = OperatorStateHandle("splits", RedistributionMode.SPLIT_DISTRIBUTE, InlineHandle(b""), 0)
    state = OperatorSubtaskState(operator=(handle,))
    run.coordinator.acknowledge(1, READ, 1, SubtaskSnapshot({"read": state}))
    run.complete(1, subtasks=(READS[1], *COUNTS))
    assert run.coordinator.latest_completed.operators["read"].subtasks[0] == state
