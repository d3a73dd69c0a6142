"""What the job scheduler decides, carried out on Ray: deploy, run, control, stop.

Everything runs on the JobMaster's event loop. Each subtask that runs has one open `run` call; when its
process dies the call fails within milliseconds, so nobody needs a heartbeat to see a death.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.failure_causes import cause_of, first_line, for_first_attempt
from penstock.actors.messages import (
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
    TriggerCheckpoint,
)
from penstock.actors.subtask_fleet import FleetMember, SubtaskFleet
from penstock.actors.task_descriptors import describe_tasks
from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.snapshot import SubtaskId
from penstock.runtime.errors import DeploymentError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.io.storage import open_location
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.elements import CheckpointBarrier

logger = logging.getLogger(__name__)

_RETRY_DELAY = 0.3


class RayExecution:
    """The `ExecutionGateway` of a job on Ray.

    Args:
        job_id: The job.
        graph: Its subtasks.
        config: Its settings.
        storage: Where state is.
        fleet: Its actors.
        master: The JobMaster's own handle, for the subtasks to report to.
        pool: Threads for blocking work.
        on_end: Told when the job has ended, and why if it has failed.
        on_fenced: Told when another JobMaster has taken the job over.
    """

    def __init__(
        self,
        job_id: str,
        graph: ExecutionGraph,
        config: JobConfig,
        storage: SnapshotStorage,
        fleet: SubtaskFleet,
        master: ActorHandle[Any],
        pool: ThreadPoolExecutor,
        on_end: Callable[[str], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._job_id = job_id
        self._graph = graph
        self._config = config
        self._storage = storage
        self._fleet = fleet
        self._master = master
        self._pool = pool
        self._on_end = on_end
        self._on_fenced = on_fenced
        self._attempt = 0
        self._stopped_through = 0
        self._deployment: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[SubtaskId, FleetMember] = {}
        self.scheduler: JobScheduler | None = None

    # -- ExecutionGateway -----------------------------------------------------------------------------------

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """Bring all subtasks up for this attempt; the scheduler is told how it went."""
        self._attempt = attempt
        self._deployment = self._spawn(self._deploy(attempt, restore))

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job was rescaled: actors that do not fit any more are ended."""
        self._graph = graph
        self._fleet.change_graph(graph)

    def start(self, attempt: int) -> None:
        """Let all subtasks run."""
        self._running = dict(self._fleet.members)
        for subtask, member in self._running.items():
            self._spawn(self._run(attempt, subtask, member))
        asyncio.get_running_loop().call_soon(self._require_scheduler().on_started, attempt)

    def stop_all(self, attempt: int) -> None:
        """Stop all subtasks; the scheduler is told when nothing of this attempt runs any more."""
        self._stopped_through = attempt
        if self._deployment is not None:
            self._deployment.cancel()
        self._spawn(self._stop_all(attempt))

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        """Tell sources to start a checkpoint."""
        self._control(attempt, subtasks, TriggerCheckpoint(barrier))

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

    async def _deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        try:
            # An actor that was taken over may run an older attempt: it ends before this one opens.
            await self._stop_members(attempt - 1)
            members = await self._fleet.ensure_all()
            descriptors = await asyncio.wait_for(
                asyncio.get_running_loop().run_in_executor(
                    self._pool,
                    describe_tasks,
                    self._job_id,
                    attempt,
                    self._graph,
                    self._config,
                    restore,
                    self._storage,
                    open_location,
                ),
                self._config.deployment_timeout,
            )
            answers = await asyncio.wait_for(
                asyncio.gather(
                    *(members[d.id].handle.deploy.remote(d, self._master) for d in descriptors),
                    return_exceptions=True,
                ),
                self._config.deployment_timeout,
            )
        except TimeoutError:
            msg = (
                f"the subtasks were not ready within {self._config.deployment_timeout:g} s: listing splits, "
                "the reading of state or an operator's opening takes longer than deployment_timeout"
            )
            self._deployment_failed(attempt, FailureCause(msg))
            return
        except Exception as error:
            self._deployment_failed(attempt, for_first_attempt(attempt, cause_of(error), error))
            return
        causes = [
            cause
            for descriptor, answer in zip(descriptors, answers, strict=True)
            if (cause := self._deploy_failure(attempt, descriptor.id, answer)) is not None
        ]
        if causes:
            self._deployment_failed(attempt, causes[0])
        elif self.scheduler is not None:
            self.scheduler.on_deployed(attempt)

    def _deploy_failure(self, attempt: int, subtask: SubtaskId, answer: object) -> FailureCause | None:
        if answer is None:
            return None
        if isinstance(answer, SubtaskFailed):
            cause = FailureCause(answer.error, subtask, answer.traceback, answer.recoverable)
            return for_first_attempt(attempt, cause, answer.location)
        if isinstance(answer, ray.exceptions.RayActorError):
            self._fleet.lose(subtask)
            return FailureCause("its process died while it was deployed", subtask)
        return FailureCause(f"it could not be deployed: {answer}", subtask)

    def _deployment_failed(self, attempt: int, cause: FailureCause) -> None:
        if self.scheduler is not None:
            self.scheduler.on_deployment_failed(attempt, cause)

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
        except Exception as error:
            scheduler.on_subtask_failed(attempt, subtask, cause_of(error))
            return
        if isinstance(outcome, SubtaskFailed):
            cause = FailureCause(outcome.error, subtask, outcome.traceback, outcome.recoverable)
            scheduler.on_subtask_failed(attempt, subtask, cause)
        elif isinstance(outcome, SubtaskFinished):
            scheduler.on_subtask_finished(attempt, subtask)
        elif isinstance(outcome, SubtaskStopped) and attempt > self._stopped_through:
            cause = FailureCause(
                "it was stopped although the job runs: another attempt has its process", subtask
            )
            scheduler.on_subtask_failed(attempt, subtask, cause)

    async def _stop_all(self, attempt: int) -> None:
        await self._stop_members(attempt)
        self._require_scheduler().on_all_stopped(attempt)

    async def _stop_members(self, attempt: int) -> None:
        """Stop this attempt and all older ones; whatever does not stop is killed."""

        async def stop(subtask: SubtaskId, member: FleetMember) -> None:
            try:
                await asyncio.wait_for(member.handle.stop.remote(attempt), self._config.cancellation_timeout)
            except TimeoutError:
                logger.warning(
                    "%s does not stop (stuck in a user's function?): its process is killed", subtask
                )
                self._fleet.lose(subtask)
            except Exception as error:
                if not isinstance(error, ray.exceptions.RayActorError):
                    logger.warning("%s can't be stopped, its process is killed: %s", subtask, error)
                if self._fleet.members.get(subtask) is member:
                    self._fleet.lose(subtask)

        await asyncio.gather(*(stop(s, m) for s, m in list(self._fleet.members.items())))

    def _control(self, attempt: int, subtasks: Sequence[SubtaskId], message: SubtaskControl) -> None:
        for subtask in subtasks:
            member = self._running.get(subtask)
            if member is not None:
                self._spawn(self._send_control(attempt, member, message))

    async def _send_control(self, attempt: int, member: FleetMember, message: SubtaskControl) -> None:
        while attempt == self._attempt:
            try:
                await member.handle.control.remote(attempt, message)
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(_RETRY_DELAY)
            except ray.exceptions.RayActorError:
                # The open `run` call of this subtask fails at the same moment and tells the scheduler.
                return
            else:
                return

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
