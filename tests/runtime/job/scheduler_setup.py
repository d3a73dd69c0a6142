"""A whole scheduler with the real states, coordinator, log and storage; only the cluster is recorded."""

from dataclasses import dataclass, field

from prompt_runner import PromptRunner
from small_graphs import read_and_count

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import StorageError
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import (
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import write_state_file
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

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
    """Records the outgoing calls of the scheduler."""

    said: list = field(default_factory=list)
    restored: list = field(default_factory=list)
    barriers: list = field(default_factory=list)
    stops: list = field(default_factory=list)

    def deploy(self, attempt, subtasks, restore):
        self.said.append(("deploy", attempt))
        self.restored.append(None if restore is None else restore.checkpoint_id)

    def start(self, attempt, subtasks):
        self.said.append(("start", attempt))

    def stop(self, attempt, subtasks, stopped):
        self.said.append(("stop", attempt))
        self.stops.append(stopped)

    def stopped(self):
        """The oldest stop is over."""
        self.stops.pop(0)()

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
        self.runner = PromptRunner()
        self.storage = storage if storage is not None else FlakyStorage()
        self.paths = SnapshotPaths("job")
        self.cluster = Cluster()
        self.warnings = []
        self.scheduler = JobScheduler(
            "job",
            CurrentGraph(read_and_count()),
            JobConfig(checkpointing=config, restart=restart, **(job or {})),
            self.cluster,
            self.storage if checkpointing else None,
            self.clock,
            self.timers,
            self.runner,
            warn=self.warnings.append,
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
        self.cluster.stopped()
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
        return [step.target for step in self.scheduler.statistics().transitions]
