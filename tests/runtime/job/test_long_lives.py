"""A job that runs for years: what its JobMaster holds does not grow with what has happened."""

import gc
from collections.abc import Collection
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest
from prompt_runner import PromptRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.coordinator.failures import CheckpointFailureManager
from penstock.runtime.checkpoint.coordinator.files import REMEMBERED_ENDS
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY, DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

GRAPH = read_and_count(reads=1)
READ, COUNT = (subtask.id for subtask in GRAPH.subtasks)


class Cluster:
    """Does nothing, and remembers nothing but the newest checkpoint."""

    checkpoint_id, is_savepoint = -1, False

    def trigger_checkpoint(self, attempt, subtasks, barrier):
        self.checkpoint_id, self.is_savepoint = barrier.checkpoint_id, barrier.options.kind.is_savepoint

    def stop(self, attempt, subtasks, stopped):
        self.stopped = stopped

    def __getattr__(self, name):
        return lambda *_: None


class LongLife:
    """The scheduler of a job, with everything that it decides with."""

    def __init__(self):
        self.cluster, self.storage = Cluster(), MemoryStorage()
        self.runner, clock = PromptRunner(), ManualClock()
        self.timers = ManualTimers(clock)
        config = JobConfig(
            checkpointing=Checkpointing(every=1e9, timeout=1e8, tolerable_failures=None),
            restart=FixedDelay(attempts=10**9, delay=1),
        )
        self.scheduler = JobScheduler(
            "job", CurrentGraph(GRAPH), config, self.cluster, self.storage, clock, self.timers, self.runner
        )
        self.scheduler.start()
        self.come_up()

    def come_up(self):
        self.runner.run_all()
        self.scheduler.on_deployed(self.scheduler.attempt)
        self.scheduler.on_started(self.scheduler.attempt)
        assert self.scheduler.state is JobState.RUNNING

    def snapshot(self, subtask, checkpoint_id):
        paths = SnapshotPaths("job")
        file_of = paths.savepoint_file if self.cluster.is_savepoint else paths.shared_file
        path = file_of(
            checkpoint_id=checkpoint_id,
            attempt=self.scheduler.attempt,
            operator_id=subtask.vertex,
            subtask=subtask.index,
            number=0,
        )
        file = write_state_file(self.storage, path, b"state")
        handle = OperatorStateHandle("state", RedistributionMode.UNION, file, 1)
        return SubtaskSnapshot({subtask.vertex: OperatorSubtaskState(operator=(handle,))})

    def acknowledge(self, subtask, checkpoint_id):
        return self.scheduler.acknowledge(
            self.scheduler.attempt,
            subtask,
            checkpoint_id,
            self.snapshot(subtask, checkpoint_id),
            CheckpointMetrics(),
        )

    def completed_one(self):
        self.scheduler.trigger_checkpoint()
        for subtask in (READ, COUNT):
            self.acknowledge(subtask, self.cluster.checkpoint_id)
        self.runner.run_all()
        assert self.scheduler.latest_completed.checkpoint_id == self.cluster.checkpoint_id

    def declined_one(self):
        self.scheduler.trigger_checkpoint()
        attempt = self.scheduler.attempt
        self.scheduler.decline(attempt, READ, self.cluster.checkpoint_id, Reason.CHECKPOINT_DECLINED)
        self.runner.run_all()

    def savepoint(self):
        answers = []
        self.scheduler.take_savepoint(None, answers.append)
        for _ in ("the savepoint", "the checkpoint behind it"):
            for subtask in (READ, COUNT):
                self.acknowledge(subtask, self.cluster.checkpoint_id)
            self.runner.run_all()
        assert answers[0].checkpoint.is_savepoint

    def failure(self):
        attempt = self.scheduler.attempt
        self.scheduler.on_subtask_failed(attempt, COUNT, FailureCause(f"failure of attempt {attempt}"))
        self.cluster.stopped()
        self.timers.advance(1)
        self.come_up()
        assert self.scheduler.attempt == attempt + 1

    def held(self):
        """Number of elements in the collections that the scheduler can reach.

        What stands for the world is left out, and the log: it names the slots of all attempts (its
        docstring says why).
        """
        seen, waiting, elements = {id(GRAPH)}, [self.scheduler], 0
        world = (PromptRunner, ManualTimers, ManualClock, MemoryStorage, Cluster, DecisionLog)
        while waiting:
            one = waiting.pop()
            if id(one) in seen or isinstance(one, (type, ModuleType, BuiltinFunctionType, *world)):
                continue
            seen.add(id(one))
            if isinstance(one, FunctionType):
                waiting += one.__closure__ or ()
                continue
            if isinstance(one, Collection) and not isinstance(one, (str, bytes)):
                elements += len(one)
            waiting += gc.get_referents(one)
        return elements


@pytest.fixture
def job():
    return LongLife()


def repeated(what, times):
    for _ in range(times):
        what()


@pytest.mark.parametrize("what", [LongLife.completed_one, LongLife.declined_one], ids=lambda f: f.__name__)
def test_thousands_of_checkpoints_leave_no_more_behind_than_the_last_ones(job, what):
    job.completed_one()
    repeated(lambda: what(job), REMEMBERED_ENDS + 100)
    held = job.held()
    assert held > REMEMBERED_ENDS, "the search finds what is remembered"
    repeated(lambda: what(job), 2 * REMEMBERED_ENDS)
    assert job.held() == held


def test_savepoints_without_end_leave_nothing_behind(job):
    repeated(job.declined_one, REMEMBERED_ENDS)
    repeated(job.savepoint, 60)
    held = job.held()
    repeated(job.savepoint, 30)
    assert job.held() == held


def test_restarts_without_end_leave_no_more_behind_than_the_last_ones(job):
    job.completed_one()
    repeated(job.failure, 60)
    held = job.held()
    repeated(job.failure, 20)
    assert job.held() == held


def test_of_attempts_that_are_killed_in_a_checkpoint_only_their_slots_in_the_log_stay(job):
    def killed_in_a_checkpoint():
        repeated(job.completed_one, 3)
        job.scheduler.trigger_checkpoint()
        job.acknowledge(READ, job.cluster.checkpoint_id)
        job.snapshot(COUNT, job.cluster.checkpoint_id)  # it dies before it acknowledges what it has written
        job.failure()
        job.runner.run_all()

    killed_in_a_checkpoint()
    others = len(files_outside_the_log(job.storage))
    for _ in range(COMPACT_EVERY):
        killed_in_a_checkpoint()
        assert len(files_outside_the_log(job.storage)) == others
        # The records since the last but one compaction, the newest compaction, and the hint.
        most = 2 * COMPACT_EVERY + 2 + job.scheduler.attempt
        assert len(job.storage.list("job/log/")) <= most


def files_outside_the_log(storage):
    return [path for path in storage.list("job/") if not path.startswith("job/log/")]


def test_what_comes_for_a_checkpoint_that_ended_long_ago_is_known_as_late_and_left_alone(job):
    job.declined_one()
    long_ago = job.cluster.checkpoint_id
    repeated(job.declined_one, REMEMBERED_ENDS)
    just_now = job.cluster.checkpoint_id
    assert job.acknowledge(READ, long_ago) is MessageOutcome.ENDED_CHECKPOINT
    assert job.acknowledge(READ, just_now) is MessageOutcome.ENDED_CHECKPOINT
    job.runner.run_all()
    assert job.storage.list("job/shared/") == [f"job/shared/1-{long_ago}-read-0-0"]
    job.failure()
    job.runner.run_all()
    assert job.storage.list("job/shared/") == [], "a new attempt begins: nobody can need it any more"


def test_failures_that_are_tolerated_for_ever_still_count_once_each():
    failures = CheckpointFailureManager(None)
    for checkpoint_id in range(5000):
        assert not failures.failed(Reason.CHECKPOINT_EXPIRED, checkpoint_id)
        assert not failures.failed(Reason.CHECKPOINT_DECLINED, checkpoint_id)
    assert failures.in_a_row == 5000
