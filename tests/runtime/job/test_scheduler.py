"""A job from start to end: the real states, coordinator, log and storage; the rest is moved by hand."""

import json
from dataclasses import dataclass, field

import pytest

from penstock.runtime.checkpoint.config import Checkpointing, KeepAfter
from penstock.runtime.checkpoint.coordinator_messages import MessageOutcome
from penstock.runtime.checkpoint.coordinator_plan import SubtaskStatus
from penstock.runtime.checkpoint.coordinator_requests import CheckpointCompleted, CheckpointFailed
from penstock.runtime.checkpoint.decision_log import DecisionLog
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.checkpoint.memory_storage import MemoryStorage
from penstock.runtime.checkpoint.metadata import write_state_file
from penstock.runtime.checkpoint.paths import SnapshotPaths
from penstock.runtime.checkpoint.snapshot import (
    CheckpointMetrics,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskId,
    SubtaskSnapshot,
)
from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.restart import ExponentialBackoff, FixedDelay, NoRestart
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.job.scheduler_statistics import SchedulerStatistics
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimers
from penstock.runtime.testing.small_graphs import read_and_count

READ, COUNT = SubtaskId("read", 0), SubtaskId("count", 0)
READS = (READ, SubtaskId("read", 1))
ALL = (*READS, COUNT)


class FlakyStorage(MemoryStorage):
    """Fails every call while it is down."""

    down = False

    def put(self, path, data, *, create=False):
        self._check(path)
        super().put(path, data, create=create)

    def list(self, prefix):
        self._check(prefix)
        return super().list(prefix)

    def delete(self, paths):
        self._check("files")
        super().delete(paths)

    def _check(self, what):
        if self.down:
            raise StorageError(f"no answer for {what}")


@dataclass
class Cluster:
    """Records what the scheduler asks of the world."""

    said: list = field(default_factory=list)
    restored: list = field(default_factory=list)
    barriers: list = field(default_factory=list)

    def deploy(self, attempt, restore):
        self.said.append(("deploy", attempt))
        self.restored.append(None if restore is None else restore.checkpoint_id)

    def start(self, attempt):
        self.said.append(("start", attempt))

    def stop_all(self, attempt):
        self.said.append(("stop_all", attempt))

    def trigger_checkpoint(self, attempt, subtasks, barrier):
        self.said.append(("trigger", attempt, barrier.checkpoint_id, tuple(subtasks)))
        self.barriers.append(barrier)

    def notify_checkpoint_complete(self, attempt, subtasks, checkpoint_id):
        self.said.append(("complete", attempt, checkpoint_id, tuple(subtasks)))

    def notify_checkpoint_aborted(self, attempt, subtasks, checkpoint_id):
        self.said.append(("aborted", attempt, checkpoint_id))

    def job_ended(self, state, cause):
        self.said.append(("ended", state, cause))

    def fenced(self):
        self.said.append(("fenced",))

    def take(self):
        said, self.said = self.said, []
        return said


class Run:
    """One JobMaster's scheduler; several may share a storage."""

    def __init__(self, *, restart=None, storage=None, checkpointing=True, clock=None, job=None, **settings):
        config = Checkpointing(**{"every": 10, **settings}) if checkpointing else None
        self.clock = clock or ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage = storage if storage is not None else FlakyStorage()
        self.paths = SnapshotPaths("job")
        self.cluster = Cluster()
        self.scheduler = JobScheduler(
            "job",
            read_and_count(),
            JobConfig(checkpointing=config, restart=restart, **(job or {})),
            self.cluster,
            self.storage if checkpointing else None,
            self.clock,
            self.timers,
            self.runner,
        )

    @property
    def state(self):
        return self.scheduler.state

    def view(self):
        return DecisionLog(self.storage, self.paths).replay()

    def start(self):
        """Start and go on until it runs."""
        self.scheduler.start()
        self.come_up()
        return self

    def come_up(self):
        self.runner.run_all()
        self.scheduler.on_deployed(self.scheduler.attempt)
        self.scheduler.on_started(self.scheduler.attempt)
        assert self.state is JobState.RUNNING
        self.cluster.take()

    def fail(self, subtask=COUNT, text="division by zero", **how):
        self.scheduler.on_subtask_failed(self.scheduler.attempt, subtask, FailureCause(text, **how))

    def stopped(self):
        self.scheduler.on_all_stopped(self.scheduler.attempt)
        self.runner.run_all()

    def acknowledge(self, checkpoint_id, subtasks=ALL):
        attempt = self.scheduler.attempt
        for subtask in subtasks:
            path = self.paths.shared_file(
                checkpoint_id=checkpoint_id,
                attempt=attempt,
                operator_id=subtask.vertex,
                subtask=subtask.index,
                number=0,
            )
            file = write_state_file(self.storage, path, b"state")
            handle = OperatorStateHandle("state", RedistributionMode.UNION, file, 1)
            snapshot = SubtaskSnapshot({subtask.vertex: OperatorSubtaskState(operator=(handle,))})
            self.scheduler.acknowledge(attempt, subtask, checkpoint_id, snapshot, CheckpointMetrics())

    def checkpoint(self):
        """Take a checkpoint by hand from start to end."""
        answers = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        self.acknowledge(self.cluster.barriers[-1].checkpoint_id)
        self.runner.run_all()
        self.cluster.take()
        return answers[0].checkpoint

    def states(self):
        return [step.target for step in self.scheduler.status().transitions]


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
    assert run.scheduler.status().checkpoints.failures_in_a_row == 1


def test_a_last_checkpoint_that_always_fails_fails_the_attempt():
    run = Run(every=1000, tolerable_failures=2, restart=NoRestart()).start()
    for subtask in ALL:
        run.scheduler.on_end_of_data(1, subtask)
    for checkpoint_id in (1, 2, 3):
        run.scheduler.decline(1, COUNT, checkpoint_id, Reason.CHECKPOINT_DECLINED, "disk full")
        run.timers.advance(1)
    assert run.state is JobState.FAILING
    assert "disk full" in run.scheduler.status().cause


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
    assert run.scheduler.status().checkpoints is None


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
            read_and_count(),
            JobConfig(checkpointing=Checkpointing(every=1)),
            Cluster(),
            None,
            ManualClock(),
            ManualTimers(ManualClock()),
            ManualAsyncRunner(),
        )


def test_a_failure_stops_everything_waits_and_restores_the_newest_checkpoint():
    run = Run(restart=FixedDelay(attempts=3, delay=5)).start()
    checkpoint = run.checkpoint()
    run.fail()
    assert (run.state, run.cluster.take()) == (JobState.FAILING, [("stop_all", 1)])
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
    status = run.scheduler.status()
    assert (status.attempt, status.restarts, status.restored_checkpoint) == (2, 1, 1)


def test_the_first_failure_is_the_root_and_later_ones_are_secondary():
    run = Run().start()
    run.fail(COUNT, "division by zero", traceback="line 3")
    run.fail(READ, "its receiver is gone")
    [record] = run.scheduler.status().failures
    assert record.root == FailureCause("division by zero", COUNT, "line 3")
    assert [str(cause) for cause in record.secondary] == ["read[0]: its receiver is gone"]
    assert run.scheduler.status().cause == "count[0]: division by zero"


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
    assert run.scheduler.status().transitions[-1].cause == "it has used its 2 restarts"
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
    assert (run.state, run.cluster.take()[-1]) == (JobState.FAILING, ("stop_all", 1))
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
    assert run.scheduler.status().cause == "checkpoint 1 failed (checkpoint_declined): count[0]: disk full"


def test_the_next_attempt_waits_for_a_record_that_is_being_written_and_restores_it():
    run = Run(restart=FixedDelay(delay=0)).start()
    run.scheduler.trigger_checkpoint()
    run.acknowledge(1)
    run.fail()
    run.scheduler.on_all_stopped(1)
    assert run.state is JobState.FAILING
    run.runner.run_next()
    assert run.state is JobState.RESTARTING
    run.timers.advance(0)
    run.runner.run_all()
    assert run.cluster.restored == [None, 1]


def test_answers_of_older_attempts_change_nothing_and_are_counted():
    run = Run(restart=FixedDelay(delay=0)).start()
    run.fail()
    run.stopped()
    run.timers.advance(0)
    run.come_up()
    before = run.scheduler.status()
    run.scheduler.on_subtask_failed(1, READ, FailureCause("late"))
    run.scheduler.on_subtask_finished(1, READ)
    run.scheduler.on_end_of_data(1, READ)
    run.scheduler.on_deployed(1)
    run.scheduler.on_deployment_failed(1, FailureCause("late"))
    run.scheduler.on_started(1)
    run.scheduler.on_all_stopped(1)
    outcome = run.scheduler.decline(1, READ, 1, Reason.CHECKPOINT_DECLINED)
    after = run.scheduler.status()
    assert outcome is MessageOutcome.STALE_ATTEMPT
    assert after.stale_events == before.stale_events + 8
    assert (after.state, after.transitions, after.failures) == (
        JobState.RUNNING,
        before.transitions,
        before.failures,
    )


def test_events_that_nobody_waits_for_are_ignored_and_counted():
    run = Run().start()
    run.scheduler.start()
    run.scheduler.on_deployed(1)
    run.scheduler.on_all_stopped(1)
    assert run.state is JobState.RUNNING
    assert run.scheduler.status().ignored_events == 3


def test_cancel_of_a_running_job_stops_it_and_deletes_its_checkpoints():
    run = Run().start()
    run.checkpoint()
    run.scheduler.cancel()
    assert (run.state, run.cluster.take()) == (JobState.CANCELLING, [("stop_all", 1)])
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
    assert [said[0] for said in run.cluster.said].count("stop_all") == stops
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
    run.stopped()
    run.cluster.take()
    run.scheduler.start()
    run.scheduler.cancel()
    run.fail()
    run.scheduler.on_all_stopped(1)
    run.timers.advance(10_000)
    assert (run.state, run.cluster.take()) == (JobState.CANCELLED, [])


def test_a_job_master_that_comes_back_goes_on_from_the_newest_checkpoint():
    first = Run().start()
    first.checkpoint()
    first.checkpoint()
    second = Run(storage=first.storage).start()
    assert second.cluster.restored == [2]
    status = second.scheduler.status()
    assert (status.attempt, status.restarts) == (2, 1)
    second.scheduler.trigger_checkpoint()
    assert second.cluster.barriers[-1].checkpoint_id == 3
    assert second.cluster.barriers[-1].confirmed_id == 2


def test_files_that_a_dead_job_master_left_behind_are_swept():
    first = Run().start()
    first.checkpoint()
    first.scheduler.trigger_checkpoint()
    first.acknowledge(2, READS)
    assert len([p for p in first.storage.list("job/shared/") if "/1-2-" in p]) == 2
    second = Run(storage=first.storage).start()
    second.runner.run_all()
    assert [p.removeprefix("job/shared/") for p in second.storage.list("job/shared/")] == [
        "1-1-count-0-0",
        "1-1-read-0-0",
        "1-1-read-1-0",
    ]


@pytest.mark.parametrize("end", ["cancelled", "finished", "failed"])
def test_a_job_that_has_ended_does_not_begin_again(end):
    first = Run(restart=NoRestart()).start()
    if end == "cancelled":
        first.scheduler.cancel()
        first.stopped()
    elif end == "failed":
        first.fail()
        first.stopped()
    else:
        for subtask in ALL:
            first.scheduler.on_subtask_finished(1, subtask)
        first.runner.run_all()
    second = Run(storage=first.storage)
    second.scheduler.start()
    second.runner.run_all()
    assert second.state is JobState(end)
    [(said, state, cause)] = second.cluster.take()
    assert (said, state) == ("ended", JobState(end))
    assert ("division by zero" in cause) == (end == "failed")
    assert second.view().last_attempt == 1


def test_the_deaths_of_job_masters_count_as_restarts():
    storage = FlakyStorage()
    for _ in range(3):
        run = Run(storage=storage, restart=FixedDelay(attempts=2)).start()
    last = Run(storage=storage, restart=FixedDelay(attempts=2))
    last.scheduler.start()
    last.runner.run_all()
    assert (run.scheduler.attempt, last.state) == (3, JobState.FAILED)
    assert [said[0] for said in last.cluster.take()] == ["ended"]
    assert "attempt 4 is one too many" in last.scheduler.status().cause


def test_a_job_master_that_dies_in_a_loop_waits_longer_each_time_before_it_deploys():
    storage, clock = FlakyStorage(), ManualClock()
    config = ExponentialBackoff(initial=4, maximum=60, jitter=0)
    waits = []
    for _ in range(4):
        run = Run(storage=storage, restart=config, clock=clock)
        run.scheduler.start()
        run.runner.run_all()
        waits.append(sum(timer.due - clock.monotonic() for timer in run.timers.pending))
        if waits[-1]:
            assert run.cluster.take() == []
            run.timers.fire_next()
        assert run.cluster.take()[-1][0] == "deploy"
        clock.advance(2)
    assert waits == [0, 0, 4, 8]


def test_cancel_while_a_job_master_that_came_back_waits_stops_nothing():
    storage = FlakyStorage()
    for _ in range(3):
        run = Run(storage=storage, restart=ExponentialBackoff(initial=4, jitter=0))
        run.scheduler.start()
        run.runner.run_all()
    run.cluster.take()
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert run.cluster.take() == [("ended", JobState.CANCELLED, "")]
    assert run.timers.pending == ()


def test_a_scheduler_whose_job_was_taken_over_leaves_quietly():
    old = Run().start()
    old.scheduler.trigger_checkpoint()
    old.cluster.take()
    new = Run(storage=old.storage).start()
    new.checkpoint()
    old.acknowledge(1)
    files = old.storage.list("job/")
    old.runner.run_all()
    assert old.cluster.take() == [("fenced",)]
    assert old.scheduler.status().is_fenced
    old.scheduler.cancel()
    old.fail()
    old.timers.advance(10_000)
    old.runner.run_all()
    assert old.cluster.take() == []
    assert set(files) - set(old.storage.list("job/")) == set()
    assert new.view().last_attempt == 2


def test_a_failed_attempt_that_learns_of_its_successor_does_not_restart():
    old = Run(restart=FixedDelay(delay=0)).start()
    old.scheduler.trigger_checkpoint()
    old.acknowledge(1)
    old.fail()
    old.scheduler.on_all_stopped(1)
    Run(storage=old.storage).start()
    old.cluster.take()
    old.runner.run_all()
    assert old.cluster.take() == [("fenced",)]
    assert old.state is JobState.FAILING
    assert old.timers.pending == ()


def test_a_restart_finds_out_that_the_job_was_taken_over():
    old = Run(restart=FixedDelay(delay=1)).start()
    old.fail()
    old.stopped()
    new = Run(storage=old.storage).start()
    old.cluster.take()
    old.timers.advance(1)
    old.runner.run_all()
    assert old.cluster.take() == [("fenced",)]
    assert new.view().last_attempt == 2


def test_the_end_of_a_job_that_was_taken_over_is_not_recorded():
    old = Run().start()
    new = Run(storage=old.storage).start()
    old.scheduler.cancel()
    old.cluster.take()
    old.stopped()
    assert old.cluster.take() == [("fenced",)]
    assert new.view().ended is None


def test_a_storage_that_is_away_at_the_start_is_a_failure_that_is_tried_again_but_not_for_ever():
    run = Run(restart=FixedDelay(attempts=2, delay=1))
    run.storage.down = True
    run.scheduler.start()
    for _ in range(2):
        run.runner.run_all()
        assert run.state is JobState.RESTARTING
        run.timers.advance(1)
    run.runner.run_all()
    while run.timers.fire_next():
        run.runner.run_all()
    assert run.state is JobState.FAILED
    [ended] = run.cluster.take()
    assert ended[1] is JobState.FAILED
    assert "the attempt could not begin: StorageError: no answer" in ended[2]


def test_a_storage_that_comes_back_lets_the_job_begin():
    run = Run(restart=FixedDelay(attempts=2, delay=1))
    run.storage.down = True
    run.scheduler.start()
    run.runner.run_all()
    run.storage.down = False
    run.timers.advance(1)
    run.come_up()
    assert run.scheduler.attempt == 1


def test_a_restart_whose_record_got_lost_is_not_taken_for_another_job_master():
    run = Run(restart=FixedDelay(attempts=5, delay=1)).start()
    run.checkpoint()
    run.fail()
    run.stopped()
    log_list, calls = run.storage.list, []

    def list_fails_after_the_record(prefix):
        if prefix == "job/shared/":
            calls.append(prefix)
            if len(calls) == 1:
                raise StorageError("no answer")
        return log_list(prefix)

    run.storage.list = list_fails_after_the_record
    run.timers.advance(1)
    run.runner.run_all()
    assert run.state is JobState.RESTARTING
    run.timers.advance(1)
    run.come_up()
    assert run.scheduler.attempt == 3


def test_the_end_is_recorded_as_soon_as_the_storage_is_back():
    run = Run().start()
    run.scheduler.cancel()
    run.storage.down = True
    run.stopped()
    assert run.state is JobState.CANCELLING
    run.storage.down = False
    run.timers.advance(1)
    run.runner.run_all()
    assert run.state is JobState.CANCELLED
    assert run.view().ended.state == "cancelled"


def test_a_job_ends_even_if_its_end_can_never_be_recorded_and_says_so():
    run = Run().start()
    run.scheduler.cancel()
    run.storage.down = True
    run.stopped()
    run.cluster.take()
    while run.timers.fire_next():
        run.runner.run_all()
    assert run.state is JobState.CANCELLED
    [(_, _, cause)] = run.cluster.take()
    assert cause.startswith("its end could not be recorded: OutcomeUnknownError")


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
    assert "Sinks may repeat" in lenient.scheduler.status().warning
    assert lenient.checkpoint().checkpoint_id == 3


def test_a_failure_after_everything_has_finished_does_no_harm():
    run = Run().start()
    for subtask in ALL:
        run.scheduler.on_subtask_finished(1, subtask)
    run.fail()
    run.scheduler.cancel()
    run.runner.run_all()
    assert run.state is JobState.FINISHED
    assert run.cluster.take() == [("ended", JobState.FINISHED, "")]
    assert run.scheduler.status().failures == ()


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
    assert run.scheduler.status().subtasks[READS[1]] is SubtaskStatus.FINISHED


def test_where_checkpoints_stop_with_the_first_finished_subtask_the_last_one_is_taken_all_the_same():
    run = Run(job={"checkpoints_after_tasks_finish": False}).start()
    run.checkpoint()
    run.scheduler.on_subtask_finished(1, READ)
    run.timers.advance(30)
    assert len(run.cluster.barriers) == 1, "no periodic one any more"
    for subtask in ALL[1:]:
        run.scheduler.on_end_of_data(1, subtask)
    assert len(run.cluster.barriers) == 2, "whoever is left waits for it"
    run.acknowledge(2, ALL[1:])
    run.runner.run_all()
    for subtask in ALL[1:]:
        run.scheduler.on_subtask_finished(1, subtask)
    run.runner.run_all()
    assert run.state is JobState.FINISHED


def test_a_request_is_answered_with_its_checkpoint():
    run = Run().start()
    answers = []
    run.scheduler.trigger_checkpoint(on_answer=answers.append)
    run.acknowledge(1)
    run.runner.run_all()
    assert isinstance(answers[0], CheckpointCompleted)


def test_a_status_survives_json():
    run = Run(restart=FixedDelay(delay=0)).start()
    run.checkpoint()
    run.scheduler.trigger_checkpoint()
    run.scheduler.decline(1, READ, 2, Reason.CHECKPOINT_DECLINED, "disk full")
    run.fail(traceback="line 3")
    run.fail(READ)
    run.stopped()
    status = run.scheduler.status()
    assert SchedulerStatistics.from_dict(json.loads(json.dumps(status.to_dict()))) == status
    assert run.states() == [
        JobState.DEPLOYING,
        JobState.INITIALISING,
        JobState.RUNNING,
        JobState.FAILING,
        JobState.RESTARTING,
    ]
