"""`SimulatedExecution`: the `JobExecution` of a simulated JobMaster, with the real `JobLifecycle`.

`runtime/execution` makes all decisions about the job and its processes. This module adds the moments at which
faults strike, and reports the scheduler's calls to the trace and the observers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import TYPE_CHECKING

from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.execution.deployment import Deployer
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.heartbeats import Watch
from penstock.runtime.execution.job_execution import JobExecution
from penstock.runtime.execution.job_lifecycle import JobLifecycle, JobLookup, StartedJob, StartFailure, Then
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.describe_tasks import describe_tasks
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.cluster.master import Master
from penstock.runtime.testing.simulation.cluster.processes import MasterProcesses, ProcessTable
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.world import World

if TYPE_CHECKING:
    from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane


class SimulatedExecution(JobExecution):
    """The `ExecutionGateway` and `JobHost` of a simulated job; see the module's docstring.

    Args:
        table: The processes, which all JobMasters share.
        known_attempt: The attempt that the job's last report names; 0 without a report.

    Attributes:
        processes: The calls of this JobMaster to processes.
        running_checkpoints: Checkpoints that this JobMaster has triggered and has not seen end.
        end: The job's final state and its cause; `None` while it runs.
    """

    def __init__(
        self,
        world: World,
        master: Master,
        table: ProcessTable,
        control: ControlPlane,
        known_attempt: int,
    ) -> None:
        job, timers = master.job, master.timers
        self._world = world
        self._master = master
        self._control = control
        self._known_attempt = known_attempt
        self._table = table
        self.processes = processes = MasterProcesses(world, master, table)
        tokens = count(1)
        fleet = Fleet(job.id, master.graph, job.config, processes, timers, lambda: f"{master} {next(tokens)}")
        deployer = Deployer(master.graph, job.config, fleet, processes, timers, master.runner, self._describe)
        super().__init__(
            master.graph,
            fleet,
            deployer,
            processes,
            master.clock,
            timers,
            self._job_has_ended,
            self._fenced,
        )
        self.listener = ObservedScheduler(world, master)
        self._watch = Watch(
            fleet, processes, master.clock, timers, job.config, _not_counted, NotedSilences(world, master)
        )
        self.running_checkpoints: list[int] = []
        self.end: tuple[JobState, str] | None = None

    @property
    def job_id(self) -> str:
        return self._master.job.id

    def begin(self, *, is_restart: bool, on_over: Callable[[bool, Then], None], on_fenced: Then) -> None:
        self._lifecycle = JobLifecycle(
            self, self._master.timers, is_restart=is_restart, on_over=on_over, on_fenced=on_fenced
        )
        self._lifecycle.start()

    def leave(self, *, work_continues: bool) -> None:
        self._master.die(work_continues=work_continues)
        self._watch.end()
        self.call_off()

    def _describe(
        self,
        attempt: int,
        graph: ExecutionGraph,
        restore: CompletedCheckpoint | None,
        subtasks: Collection[SubtaskId],
        is_first: bool,
    ) -> Sequence[TaskDescriptor]:
        world, job = self._world, self._master.job
        try:
            descriptors = describe_tasks(
                job.id,
                attempt,
                graph,
                job.config,
                restore,
                world.storage,
                subtasks,
                world.locations(world.storage),
                is_first=is_first,
            )
        except CorruptSnapshotError as error:
            # A JobMaster may be fenced without knowing it. A later attempt may then have deleted the files.
            if world.damage.explains(error) or world.fallbacks.is_past(job.id, attempt):
                raise
            raise AssertionError(str(error)) from error
        world.restores.note(graph, restore, descriptors)
        return descriptors

    def _job_has_ended(self, state: JobState, cause: str) -> None:
        self._world.trace.note(f"== the job has ended: {state.value} {cause} ==")
        self.end = state, cause
        self._control.job_has_ended()
        self._lifecycle.job_ended()

    def _fenced(self) -> None:
        self._world.trace.note(f"== {self._master} is fenced ==")
        self._lifecycle.fenced()

    def _ended(self, checkpoint_id: int) -> None:
        if checkpoint_id in self.running_checkpoints:
            self.running_checkpoints.remove(checkpoint_id)

    # -- JobHost ------------------------------------------------------------------------------------------

    def look_up(self, answer: Callable[[JobLookup | StartFailure], None]) -> None:
        config = self._master.job.config
        answer(
            JobLookup(
                has_log=config.checkpointing is not None,
                has_ended=self._control.end is not None,
                reuses_processes=config.reuse_processes,
            )
        )

    def open_storage(self, answer: Callable[[Fenced | StartFailure | None], None]) -> None:
        answer(None)

    def adopt(self, answer: Callable[[Fleet | StartFailure], None]) -> None:
        def adopted() -> None:
            answer(self._fleet)

        if self._table.alive:
            self._fleet.adopt(adopted)
        else:
            adopted()

    def start_scheduler(self, *, is_restart: bool) -> StartedJob | StartFailure:
        self._master.begin(self, self._known_attempt, is_restart=is_restart)
        self._watch.begin(_nothing)
        return StartedJob(self._master.scheduler, self._watch)

    def note(self, what: str, error: BaseException) -> None:
        self._world.trace.note(f"{self._master}: {what}: {error}")

    def not_started(self, error: BaseException, *, is_cancelled: bool) -> None:
        msg = f"{self._master} can't start its job"
        raise AssertionError(msg) from error

    def started(self) -> None:
        self._world.trace.note(f"{self._master}: the job has started")

    def keep_last_report(self, then: Then) -> None:
        then()

    def close(self, *, in_storage: bool, stays: bool, then: Callable[[bool], None]) -> None:
        then(stays)

    def ended(self) -> None:
        self._world.trace.note(f"{self._master}: its clients learn of the end")

    # -- ExecutionGateway ---------------------------------------------------------------------------------

    def deploy(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        world, master = self._world, self._master
        self._control.restarts.note_deployment(world.clock.monotonic())
        restored = "nothing" if restore is None else f"checkpoint {restore.checkpoint_id}"
        what = f"attempt {attempt} (subtasks: {len(subtasks)}) begins from {restored}"
        world.trace.note(f"== {master}: {what} ==")
        if len(subtasks) == len(self._graph.subtasks):
            self.running_checkpoints.clear()
            world.observer.job_deployed(master, restore)
            world.fallbacks.deployed(master.job.id, attempt, restore)
            self._control.wake_the_replaced()
        super().deploy(attempt, subtasks, restore)
        world.on_moment(Moment.DEPLOYING)

    def stop(self, attempt: int, subtasks: Collection[SubtaskId], stopped: Callable[[], None]) -> None:
        def noted() -> None:
            self._world.trace.note(f"{self._master}: stopped subtasks: {len(subtasks)}")
            stopped()

        self._control.restarts.note_stop(self._world.clock.monotonic())
        super().stop(attempt, subtasks, noted)

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        self.running_checkpoints.append(barrier.checkpoint_id)
        self._world.observer.checkpoint_triggered(self._master, barrier.checkpoint_id)
        super().trigger_checkpoint(attempt, subtasks, barrier)
        self._world.on_moment(Moment.TRIGGERED)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self._ended(checkpoint_id)
        self._world.fallbacks.completed(self._master.job.id, attempt, checkpoint_id)
        super().notify_checkpoint_complete(attempt, subtasks, checkpoint_id)
        self._world.on_moment(Moment.COMPLETED)

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self._ended(checkpoint_id)
        super().notify_checkpoint_aborted(attempt, subtasks, checkpoint_id)


class ObservedScheduler:
    """Passes the outcomes of calls to the scheduler of a JobMaster, and notes them in the trace."""

    def __init__(self, world: World, master: Master) -> None:
        self._world = world
        self._master = master

    def on_deployed(self, attempt: int) -> None:
        self._world.trace.note(f"{self._master}: all subtasks are deployed")
        self._master.scheduler.on_deployed(attempt)

    def on_deployment_failed(self, attempt: int, cause: FailureCause) -> None:
        self._world.trace.note(f"{self._master}: the deployment failed: {cause}")
        self._world.counts.happened(FaultKind.DEPLOYMENT_FAILED)
        self._master.scheduler.on_deployment_failed(attempt, cause)

    def on_started(self, attempt: int) -> None:
        self._master.scheduler.on_started(attempt)
        self._world.on_moment(Moment.STARTED)

    def on_subtask_finished(self, attempt: int, subtask: SubtaskId) -> None:
        self._world.trace.note(f"{self._master}: {subtask} has finished")
        self._count_old(attempt, subtask)
        self._master.scheduler.on_subtask_finished(attempt, subtask)

    def on_subtask_failed(self, attempt: int, subtask: SubtaskId, cause: FailureCause) -> None:
        self._world.trace.note(f"{self._master}: {subtask} has failed: {cause.message[:200]}")
        self._count_old(attempt, subtask)
        self._master.scheduler.on_subtask_failed(attempt, subtask, cause)

    def _count_old(self, attempt: int, subtask: SubtaskId) -> None:
        is_old = attempt < self._master.scheduler.attempt_of(subtask)
        self._world.counts.happened(FaultKind.REPORT_OF_OLD_ATTEMPT, int(is_old))


class NotedSilences:
    """Notes in the trace which processes do not answer."""

    def __init__(self, world: World, master: Master) -> None:
        self._world = world
        self._master = master

    def fell_silent(self, member: Member, silence: Silence) -> None:
        self._world.trace.note(f"{self._master}: {member.role.subtask} is silent: {silence}")

    def answers_again(self, member: Member) -> None:
        self._world.trace.note(f"{self._master}: {member.role.subtask} answers again")


def _nothing() -> None: ...


def _not_counted(subtask: SubtaskId, counters: object) -> None: ...
