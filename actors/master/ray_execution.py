"""What the job scheduler decides, carried out on Ray: deploy, run, control, stop.

Everything runs on the JobMaster's event loop. Each subtask that runs has one open `run` call; when its
process dies the call fails within milliseconds, so nobody needs a heartbeat to see a death.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import ray

from penstock.actors.master.control_lanes import ControlLanes
from penstock.actors.master.deployment import Deployment
from penstock.actors.master.failure_causes import cause_of, first_line
from penstock.actors.master.subtask_fleet import FleetMember, SubtaskFleet
from penstock.actors.shared.messages import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
    TriggerCheckpoint,
)
from penstock.runtime.errors import DeploymentError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.operators.operator_coordinator import EventAnswer
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId

logger = logging.getLogger(__name__)

_RETRY_DELAY = 0.3


class RayExecution:
    """The `ExecutionGateway` of a job on Ray.

    Args:
        job_id: The job.
        graph: Its subtasks.
        fleet: Its actors.
        deployment: Deploys and stops them.
        on_end: Told when the job has ended, and why if it has failed.
        on_fenced: Told when another JobMaster has taken the job over.
    """

    def __init__(
        self,
        job_id: str,
        graph: ExecutionGraph,
        fleet: SubtaskFleet,
        deployment: Deployment,
        on_end: Callable[[str], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._job_id = job_id
        self._graph = graph
        self._fleet = fleet
        self._deployer = deployment
        self._on_end = on_end
        self._on_fenced = on_fenced
        self._all = tuple(subtask.id for subtask in graph.subtasks)
        self._attempt = 0
        #: By subtask: the attempt that it was told to run, and that up to which it was told to stop.
        self._attempts: dict[SubtaskId, int] = {}
        self._stopped_through: dict[SubtaskId, int] = {}
        self._deployment: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[SubtaskId, FleetMember] = {}
        self._runs: dict[SubtaskId, asyncio.Task[None]] = {}
        self._lanes = ControlLanes(self._send_control, self._spawn)
        self.scheduler: JobScheduler | None = None

    # -- ExecutionGateway -----------------------------------------------------------------------------------

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """Bring all subtasks up for this attempt; the scheduler is told how it went."""
        self.deploy_region(attempt, self._all, restore)

    def deploy_region(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        """Bring these subtasks up for this attempt; the scheduler is told how it went."""
        self._attempt = attempt
        self._attempts.update(dict.fromkeys(subtasks, attempt))
        for subtask in subtasks:
            self._running.pop(subtask, None)
        self._deployment = self._spawn(self._deploy(attempt, subtasks, restore))

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job was rescaled: actors that do not fit any more are ended."""
        self._graph = graph
        self._all = tuple(subtask.id for subtask in graph.subtasks)
        self._fleet.change_graph(graph)
        self._deployer.change_graph(graph)

    def start(self, attempt: int) -> None:
        """Let all subtasks run."""
        self.start_region(attempt, self._all)

    def start_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Let these subtasks run."""
        self._running.update({subtask: self._fleet.members[subtask] for subtask in subtasks})
        for subtask in subtasks:
            self._runs[subtask] = self._spawn(self._run(attempt, subtask, self._running[subtask]))
        asyncio.get_running_loop().call_soon(self._require_scheduler().on_started, attempt)

    def stop_all(self, attempt: int) -> None:
        """Stop all subtasks; the scheduler is told when nothing of this attempt runs any more."""
        if self._deployment is not None:
            self._deployment.cancel()
        self._stopped_through.update(dict.fromkeys(self._all, attempt))
        self._spawn(self._stop(attempt, self._all, lambda s: s.on_all_stopped(attempt)))

    def stop_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Stop these subtasks; the scheduler is told when none of them runs any more."""
        self._stopped_through.update(dict.fromkeys(subtasks, attempt))
        self._spawn(self._stop(attempt, subtasks, lambda s: s.on_region_stopped(attempt)))

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        """Tell sources to start a checkpoint."""
        for subtask in subtasks:
            self._lanes.put(attempt, subtask, TriggerCheckpoint(barrier))

    def send_operator_event(
        self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any, answer: EventAnswer
    ) -> None:
        """Hand an event of a coordinator to a subtask, in order with the triggers."""

        def answered(arrived: bool) -> None:
            if arrived:
                answer.sent()
            else:
                answer.failed(DeploymentError(f"{subtask} is gone, and an event for it with it"))

        message = EventForOperator(operator_id, self._lanes.next_number(subtask), event)
        self._lanes.put(attempt, subtask, message, answered)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Tell subtasks that they may commit."""
        self._control(attempt, subtasks, NotifyComplete(checkpoint_id))

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Tell subtasks that a checkpoint was given up."""
        self._control(attempt, subtasks, NotifyAborted(checkpoint_id))

    def job_ended(self, state: JobState, cause: str) -> None:
        """The job has reached its last state."""
        self._on_end(cause)

    def fenced(self) -> None:
        """Another JobMaster owns the job and its subtasks: leave without touching anything."""
        self._on_fenced()

    # -- how it is done -------------------------------------------------------------------------------------

    async def _deploy(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        cause = await self._deployer.deploy(attempt, subtasks, restore)
        scheduler = self._require_scheduler()
        if cause is None:
            scheduler.on_deployed(attempt)
        else:
            scheduler.on_deployment_failed(attempt, cause)

    async def _stop(
        self, attempt: int, subtasks: Collection[SubtaskId], then: Callable[[JobScheduler], None]
    ) -> None:
        await self._deployer.stop(attempt, subtasks)
        then(self._require_scheduler())

    async def _run(self, attempt: int, subtask: SubtaskId, member: FleetMember) -> None:
        receivers = {
            channel.receiver for output in self._graph.subtask(subtask).outputs for channel in output.channels
        }
        peers = {receiver: self._running[receiver].handle for receiver in receivers}
        scheduler = self._require_scheduler()
        try:
            outcome: SubtaskOutcome = await member.handle.run.remote(attempt, peers)
        except ray.exceptions.RayActorError as error:
            if self._fleet.members.get(subtask) is member:
                self._fleet.lose(subtask)
            cause = FailureCause(
                f"its process died (pid {member.pid} on node {member.node_id[:8]}): {first_line(error)}",
                subtask,
            )
            scheduler.on_subtask_failed(attempt, subtask, cause)
            return
        except Exception as error:  # the call itself failed: the scheduler is told
            scheduler.on_subtask_failed(attempt, subtask, cause_of(error))
            return
        if isinstance(outcome, SubtaskFailed):
            scheduler.on_subtask_failed(attempt, subtask, outcome.cause(subtask))
        elif isinstance(outcome, SubtaskFinished):
            scheduler.on_subtask_finished(attempt, subtask)
        elif isinstance(outcome, SubtaskStopped) and attempt > self._stopped_through.get(subtask, 0):
            cause = FailureCause(
                "it was stopped although the job runs: another attempt has its process", subtask
            )
            scheduler.on_subtask_failed(attempt, subtask, cause)

    def _control(self, attempt: int, subtasks: Sequence[SubtaskId], message: SubtaskControl) -> None:
        for subtask in subtasks:
            self._spawn(self._send(attempt, subtask, message))

    async def _send(self, attempt: int, subtask: SubtaskId, message: SubtaskControl) -> None:
        await self._send_control(attempt, subtask, message)

    async def _send_control(self, attempt: int, subtask: SubtaskId, message: SubtaskControl) -> bool:
        """Send a message to a subtask that runs; whether it has it."""
        member, run = self._running.get(subtask), self._runs.get(subtask)
        while member is not None and attempt == self._attempts.get(subtask):
            try:
                arrived: bool = await member.handle.control.remote(attempt, message)
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(_RETRY_DELAY)
                continue
            except ray.exceptions.RayActorError:
                arrived = False
            if not arrived and run is not None:
                # Its open `run` call ends, too, and tells the scheduler why: that comes first.
                await asyncio.wait([run])
            return arrived
        return False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            logger.error("a part of job %s failed", self._job_id, exc_info=error)
            if error is not None and self.scheduler is not None:
                # Nobody would ever answer what this part was to answer.
                self.scheduler.on_deployment_failed(self._attempt, cause_of(error))

    def _require_scheduler(self) -> JobScheduler:
        if self.scheduler is None:
            msg = "the execution was used before its scheduler was set"
            raise DeploymentError(msg)
        return self.scheduler
