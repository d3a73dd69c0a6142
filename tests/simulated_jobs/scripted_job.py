"""`ScriptedJob`: a whole job in one thread whose course a test writes down.

The test says when checkpoints are taken, when processes die and when the job is rescaled. In between it makes
moves: steps, arrivals, background work, in an order that a seed decides. Frames come late, in any order, and
some come twice. No failure is drawn. Scheduler, coordinator and log are the real ones; only their periodic
checkpoints are switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointFailed
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import JobFailedError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState, StopRequest
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointStatus
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, snapshot_url
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.master import SimulatedJob
from penstock.runtime.testing.simulation.cluster.running_task import RunningTask, TaskState
from penstock.runtime.testing.simulation.run.simulated_run import SimulatedRun
from penstock.runtime.testing.simulation.world.agenda import Conditions, Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

#: Most moves for something that must happen by itself, such as a restart.
_MOST_MOVES: Final = 200_000

#: Seconds between two periodic checkpoints: longer than any test.
_NEVER: Final = 1e9

#: No lease ends, and none is checked before a checkpoint would be due.
_LEASE: Final = 100 * _NEVER

#: An attempt of a subtask that has not started yet.
_COMING_UP: Final = (TaskState.DEPLOYING, TaskState.DEPLOYED)

#: A checkpoint is over.
_ENDED: Final = (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)

#: Any order, frames twice now and then, and no time that passes by itself.
_CONDITIONS: Final = Conditions(
    weights=dict.fromkeys(Happening, 4),
    disorder=1.0,
    tick=0.0,
    latency=0.0,
    repeats=0.2,
    stragglers=0.0,
    slow_channels=0.0,
    slowness=0.0,
    seconds_per_record=0.0,
    lasts=0,
)


#: Messages, reports and background work before records.
_CONTROL_FIRST: Final = {
    **dict.fromkeys(Happening, 400),
    **dict.fromkeys((Happening.STEP, Happening.FRAME, Happening.CREDIT), 4),
}


class JobStuckError(AssertionError):
    """Nothing can happen any more, or not what must; says where everybody is."""


@dataclass(frozen=True, slots=True)
class ScriptedStatistics:
    """The events of a scripted job.

    Attributes:
        attempts: Attempts, of all jobs that followed each other.
        moves: Moves made.
        completed: Checkpoints completed.
        repeated: Frames that arrived twice.
        overtaken: Frames that arrived behind a later one of their channel.
    """

    attempts: int
    moves: int
    completed: int
    repeated: int
    overtaken: int


class _World(World):
    """Frames arrive twice now and then, but no message is lost.

    Args:
        open_location: Opens locations outside the storage; none by default.
    """

    def __init__(
        self, seed: int, clock: ManualClock, storage: SnapshotStorage, open_location: StorageOpener | None
    ) -> None:
        super().__init__(seed, _CONDITIONS, None, clock=clock, storage=storage)
        self._open_location = open_location

    def locations(self, storage: SnapshotStorage) -> StorageOpener:
        inside = super().locations(storage)

        def opened(url: str, *, create: bool = False) -> SnapshotStorage:
            is_outside = url != storage.url and not url.startswith(f"{storage.url}/")
            open_it = self._open_location if is_outside and self._open_location is not None else inside
            return open_it(url, create=create)

        return opened

    def repeats(self, kind: FaultKind) -> bool:
        return kind is FaultKind.FRAME_REPEATED and super().repeats(kind)


class ScriptedJob:
    """A job that a test drives step by step; see the module's text. The subtasks run when it has been made.

    Args:
        config: Its settings. It restarts as often and as soon as it has to, always as a whole.
        storage: For checkpoints.
        seed: Decides the order of moves.
        clock: It moves when nothing else can happen, or when the test moves it.
        restore_from: URL of the snapshot to start from.
        allow_non_restored_state: Leave out what it holds for operators that the graph lacks.
        open_location: Opens places that are not in `storage`.
        keeps_checkpoints: Whether the last checkpoint stays when the job has ended; else as the settings say.

    Attributes:
        storage: The checkpoint storage.

    Raises:
        JobFailedError: The job can't start from that snapshot.
        OperatorError: A subtask could not be built.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        config: JobConfig,
        storage: SnapshotStorage,
        seed: int = 0,
        clock: ManualClock | None = None,
        *,
        job_id: str = "scripted",
        restore_from: str | None = None,
        allow_non_restored_state: bool = False,
        open_location: StorageOpener | None = None,
        keeps_checkpoints: bool = True,
    ) -> None:
        self.clock = clock or ManualClock()
        self.storage = storage
        self._config = _scripted(config, keeps_checkpoints=keeps_checkpoints)
        self._restore_from, self._allow_non_restored_state = restore_from, allow_non_restored_state
        self._id = job_id
        self._started_from: CompletedCheckpoint | None = None
        self._world = _World(seed, self.clock, storage, open_location)
        # Its storage may have the log of a job that it continues.
        job = SimulatedJob(job_id, self._started(graph), self._config, is_new=False)
        self._run = SimulatedRun(self._world, job)
        self._begin()

    # -- what is there ------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[SubtaskId, RunningTask]:
        """The newest attempt of each subtask."""
        processes = self._control.processes.items()
        return {subtask: process.task for subtask, process in processes if process.task is not None}

    @property
    def is_finished(self) -> bool:
        """Whether every subtask has left."""
        return self._control.end is not None or all(task.is_finished for task in self.tasks.values())

    @property
    def running(self) -> tuple[int, ...]:
        """Checkpoints that were triggered and have not ended."""
        history = self.scheduler.statistics().checkpoint_history
        ended = {r.checkpoint_id for r in history if r.status in _ENDED}
        return tuple(each for each in self._control.running_checkpoints if each not in ended)

    @property
    def newest(self) -> CompletedCheckpoint | None:
        """The newest completed checkpoint or savepoint; of a job that took none, what it started from."""
        newest_known = self.scheduler.latest_completed
        if self._control.end is None and newest_known is not None:
            return newest_known
        # A job that is at its end has forgotten its checkpoints; the log has not.
        newest = DecisionLog(self.storage, SnapshotPaths(self._control.job.id)).replay().newest
        return self._started_from if newest is None else read_metadata(self.storage, newest.metadata)

    @property
    def newest_url(self) -> str | None:
        """URL of the newest snapshot, as for `restore_from`."""
        newest = self.newest
        return None if newest is None else snapshot_url(newest, self.storage.url)

    def subtask(self, vertex: str, index: int = 0) -> Subtask:
        """A subtask of the current attempt."""
        return self.tasks[SubtaskId(vertex, index)].subtask

    def statistics(self) -> ScriptedStatistics:
        """The events."""
        statuses, counts = self._run.statuses(), self._world.counts.by_kind()
        return ScriptedStatistics(
            sum(status.attempt for status in statuses),
            self._world.trace.moves,
            sum(0 if status.checkpoints is None else status.checkpoints.completed for status in statuses),
            counts.get(FaultKind.FRAME_REPEATED, 0),
            counts.get(FaultKind.FRAME_OVERTAKEN, 0),
        )

    # -- moves --------------------------------------------------------------------------------------------

    def move(self) -> bool:
        """Make one move or let time pass; `False` when nothing can happen any more.

        Raises:
            OperatorError: An operator failed.
        """
        due = self._world.agenda.next_time
        if due is not None and due >= _NEVER and not self._world.agenda.has_ready(self.clock.monotonic()):
            return False
        return self._run.move()

    def run(self, moves: int) -> None:
        """Make this many moves, or fewer when nothing can happen any more."""
        for _ in range(moves):
            if not self.move():
                return

    def until(self, reached: Callable[[], bool], what: str, most_moves: int = _MOST_MOVES) -> None:
        """Move until something is so.

        Raises:
            JobStuckError: It never is.
        """
        for _ in range(most_moves):
            if reached():
                return
            if not self.move():
                break
        if not reached():
            msg = f"{what}: not reached. {self._run.describe()}"
            raise JobStuckError(msg)

    def finish(self, most_moves: int = _MOST_MOVES) -> None:
        """Move until the job has ended.

        Raises:
            JobStuckError: It does not end.
            JobFailedError: It fails.
            OperatorError: An operator failed.
        """
        self.until(lambda: self._control.end is not None, "the end of the job", most_moves)
        self._require(JobState.FINISHED)

    # -- what the test writes down ------------------------------------------------------------------------

    def trigger_checkpoint(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> int | None:
        """Ask for a checkpoint, and move until its barriers are on their way; its id, `None` when refused."""
        answers: list[CheckpointAnswer] = []
        before = set(self.running)
        self.scheduler.trigger_checkpoint(kind, answers.append)
        self.until(lambda: bool(answers) or bool(set(self.running) - before), "the start of a checkpoint")
        begun = set(self.running) - before
        if begun:
            return max(begun)
        (answer,) = answers
        return (
            answer.checkpoint_id if isinstance(answer, CheckpointFailed) else answer.checkpoint.checkpoint_id
        )

    def complete_checkpoint(self, *, full: bool = False) -> int:
        """Take a checkpoint, and move until it is complete; its id.

        Args:
            full: Name no file of an earlier checkpoint.

        Raises:
            JobStuckError: It does not complete.
        """
        answers: list[CheckpointAnswer] = []
        self.scheduler.trigger_checkpoint(SnapshotKind.CHECKPOINT, answers.append, full=full)
        self._until_answered(answers)
        self.until_told()
        return _completed(answers).checkpoint_id

    def take_savepoint(self, target: str) -> str:
        """Take a savepoint in a folder of its own below `target`; returns its URL.

        Raises:
            JobStuckError: It does not complete.
        """
        answers: list[CheckpointAnswer] = []
        self.scheduler.trigger_checkpoint(SnapshotKind.SAVEPOINT, answers.append, target=target)
        self._until_answered(answers)
        self.until_told()
        return snapshot_url(_completed(answers), self.storage.url)

    def stop_with_savepoint(self, target: str, *, drain: bool = False) -> str:
        """Stop the job with a savepoint below `target`; returns its URL.

        Raises:
            JobStuckError: It does not complete, or the job does not end.
        """
        answers: list[CheckpointAnswer] = []
        self.scheduler.stop_with_savepoint(StopRequest(drain, target), answers.append)
        self.until(lambda: self._control.end is not None, "the end of the stopped job")
        return snapshot_url(_completed(answers), self.storage.url)

    def give_up_checkpoint(self, checkpoint_id: int) -> None:
        """Let a subtask decline a running checkpoint."""
        scheduler, subtask = self.scheduler, next(iter(self._control.processes))
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED
        scheduler.decline(scheduler.attempt_of(subtask), subtask, checkpoint_id, reason, "scripted")

    def abandon(self) -> None:
        """JobMaster and subtasks die for good; another job may go on over the same storage."""
        self._control.abandon()

    def kill_master(self) -> None:
        """The process of the JobMaster dies; `until_it_runs` waits for its successor.

        May be called at any moment, also by users' code that runs in the JobMaster.
        """
        self._control.crash_master()

    def lose_process(self, subtask: SubtaskId) -> None:
        """The process of a subtask dies with its node; answers that are still on their way are lost."""
        self._control.believe_dead(self._control.processes[subtask], 0.0)

    def delay_answer(self, seconds: float) -> None:
        """Let the answer of the background work that is being done come late.

        To be called by users' code that runs in the background, such as a master hook.
        """
        self._world.answer_is_late_by(seconds)

    def crash(self, graph: ExecutionGraph | None = None, *, killed: SubtaskId | None = None) -> None:
        """Lose what is in memory, and move until the subtasks run again from the newest checkpoint.

        Without another graph a process dies and the job restarts. With one, the job is gone for good, and a
        new one with an id of its own starts from its newest snapshot.

        Args:
            graph: The job from now on, for another parallelism.
            killed: The subtask whose process dies; the others are stopped. Any other one when that has left.

        Raises:
            OperatorError: A subtask could not be built.
        """
        if graph is not None:
            self._start_another(graph)
            return
        scheduler = self.scheduler
        processes = self._control.processes
        victims = [subtask for subtask, process in processes.items() if process.may_die]
        if not victims:
            return
        victims.sort(key=lambda subtask: subtask != killed)
        before = scheduler.attempt
        victim = victims[0]
        processes[victim].die(FaultKind.CRASH)
        cause = FailureCause("its process died", victim)
        scheduler.on_subtask_failed(scheduler.attempt_of(victim), victim, cause)
        self.until(lambda: scheduler.attempt > before or self._control.end is not None, "a restart")
        self.until_it_runs()

    # -- how it is done -----------------------------------------------------------------------------------

    @property
    def _control(self) -> ControlPlane:
        return self._run.control

    @property
    def scheduler(self) -> JobScheduler:
        """The scheduler in the newest JobMaster."""
        return self._control.masters.last.scheduler

    def _begin(self) -> None:
        self._control.begin()
        self.until_it_runs()

    def until_it_runs(self) -> None:
        """Move until a JobMaster is there and all subtasks run; nothing is processed on the way."""

        def runs() -> bool:
            has_master = self._control.masters.newest is not None
            is_running = has_master and self.scheduler.state is JobState.RUNNING
            return is_running and not any(task.state in _COMING_UP for task in self.tasks.values())

        agenda = self._world.agenda
        agenda.set_weights({**_CONDITIONS.weights, Happening.STEP: 0})
        self.until(lambda: self._control.end is not None or runs(), "a job that runs")
        agenda.set_weights(_CONDITIONS.weights)
        self._require(JobState.FINISHED)

    def _require(self, state: JobState) -> None:
        end = self._control.end
        if end is not None and end[0] is not state:
            raise JobFailedError(end[1])

    def _until_answered(self, answers: list[CheckpointAnswer]) -> None:
        """Move until a checkpoint has ended; what belongs to it comes first."""
        agenda = self._world.agenda
        agenda.set_weights(_CONTROL_FIRST)
        self.until(lambda: bool(answers), "the end of a checkpoint")
        agenda.set_weights(_CONDITIONS.weights)

    def until_told(self) -> None:
        """Move until what was sent to subtasks has arrived; little else happens meanwhile."""
        agenda = self._world.agenda
        agenda.set_weights({**dict.fromkeys(Happening, 0), Happening.MESSAGE: 1})
        self.until(lambda: "message" not in agenda.waiting(), "arrived messages")
        agenda.set_weights(_CONDITIONS.weights)

    def _start_another(self, graph: ExecutionGraph) -> None:
        url, self._started_from = self.newest_url, self.newest
        self._control.abandon()
        if url is not None:
            self._restore_from = url
        job_id = f"{self._id}-{len(self._run.controls) + 1}"
        self._run.continue_with(SimulatedJob(job_id, self._started(graph), self._config))
        self._begin()

    def _started(self, graph: ExecutionGraph) -> ExecutionGraph:
        job = replace(
            graph.job,
            restore_from=self._restore_from,
            allow_non_restored_state=self._allow_non_restored_state,
        )
        return replace(graph, job=job)


def _scripted(config: JobConfig, *, keeps_checkpoints: bool) -> JobConfig:
    """Without periodic checkpoints, and restarted as a whole without delay."""
    checkpointing = config.checkpointing
    advanced = replace(config.advanced, gap_timeout=_NEVER, lease_timeout=_LEASE, heartbeat_timeout=_LEASE)
    if checkpointing is None:
        return replace(config, failover="full", advanced=advanced)
    keep = KeepAfter.ALWAYS if keeps_checkpoints else checkpointing.keep_after
    checkpointing = replace(
        checkpointing, every=_NEVER, timeout=_NEVER, keep_after=keep, tolerable_failures=None
    )
    restart = FixedDelay(attempts=1_000_000, delay=0.0)
    return replace(
        config,
        checkpointing=checkpointing,
        restart=restart,
        failover="full",
        advanced=advanced,
    )


def _completed(answers: list[CheckpointAnswer]) -> CompletedCheckpoint:
    (answer,) = answers
    if isinstance(answer, CheckpointFailed):
        msg = f"checkpoint {answer.checkpoint_id} did not complete: {answer.reason}: {answer.detail}"
        raise JobStuckError(msg)
    return answer.checkpoint
