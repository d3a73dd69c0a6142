"""The coordinator with the real storage, log and store; time and background work are moved by the test."""

from dataclasses import dataclass, field

from manual_work import ManualAsyncRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.coordinator.completion import complete_checkpoint
from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.location import SavepointTargets
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.errors import StorageError
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.graph.job_graph import (
    Partitioner,
    Partitioning,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    ChannelStateHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorSubtaskState,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

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

    def trigger_checkpoint(self, attempt, subtasks, barrier):
        self.said.append(("trigger", barrier.checkpoint_id, tuple(subtasks)))
        self.barriers.append(barrier)

    def notify_checkpoint_complete(self, attempt, subtasks, checkpoint_id):
        self.said.append(("complete", checkpoint_id, tuple(subtasks)))

    def notify_checkpoint_aborted(self, attempt, subtasks, checkpoint_id):
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

    def __init__(
        self, *, begin=True, start=True, initialize_location=None, coordinators=None, targets=None, **settings
    ):
        self.config = Checkpointing(**{"every": 10, **settings})
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.runner = ManualAsyncRunner()
        self.storage = FlakyStorage()
        self.paths = SnapshotPaths("job")
        self.log = DecisionLog(self.storage, self.paths)
        self.gateway = Gateway()
        self.answers = []
        self.written = []
        self.attempt = 1
        self.log.begin_attempt(self.clock.now())
        self.planner = CheckpointPlanner(CurrentGraph(word_count()))
        self.coordinator = CheckpointCoordinator(
            self.config,
            self.planner,
            self.gateway,
            CheckpointFiles(self.storage, self.paths, self.runner),
            self.write,
            fail_job=self.gateway.fail_job,
            fenced=self.gateway.fenced,
            clock=self.clock,
            timers=self.timers,
            runner=self.runner,
            initialize_location=initialize_location,
            coordinators=coordinators,
            targets=targets and SavepointTargets(targets, self.runner, self.timers, timeout=60),
        )
        if begin:
            self.begin(1)
        if begin and start:
            self.coordinator.started()

    def write(self, checkpoint):
        self.written.append(checkpoint)
        return complete_checkpoint(
            self.storage, self.paths, self.log, checkpoint, retained=self.config.retain
        )

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
