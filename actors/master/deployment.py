"""Brings subtasks up for one attempt: their actors, their descriptors, their state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.master.failure_causes import cause_of, for_first_attempt
from penstock.actors.master.subtask_fleet import FleetMember, SubtaskFleet
from penstock.actors.shared.messages import SubtaskFailed
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.io.storage import open_location
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.describe_tasks import describe_tasks
from penstock.runtime.task.descriptor import TaskDescriptor

logger = logging.getLogger(__name__)


class Deployment:
    """Deploys subtasks of one job, and stops them; used on the JobMaster's event loop.

    Args:
        job_id: The job.
        graph: Its subtasks.
        config: Its settings.
        storage: Where state is.
        fleet: Its actors.
        master: The JobMaster's own handle, for the subtasks to report to.
        pool: Threads for blocking work.
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
    ) -> None:
        self._job_id = job_id
        self._graph = graph
        self._config = config
        self._storage = storage
        self._fleet = fleet
        self._master = master
        self._pool = pool

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job was rescaled: from the next deployment on it has this graph."""
        self._graph = graph

    async def deploy(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> FailureCause | None:
        """Place subtasks and hand them their state; why that failed, if it did."""
        timeout = self._config.deployment_timeout
        try:
            # An actor that was taken over may run an older attempt: it ends before this one opens.
            await self.stop(attempt - 1, subtasks)
            members = await self._fleet.ensure(subtasks)
            descriptors = await asyncio.wait_for(self._describe(attempt, subtasks, restore), timeout)
            return await asyncio.wait_for(self._hand_out(attempt, members, descriptors), timeout)
        except TimeoutError:
            msg = (
                f"the subtasks were not ready within {timeout:g} s: listing splits, the reading of state or "
                "an operator's opening takes longer than deployment_timeout"
            )
            return FailureCause(msg)
        except Exception as error:
            return for_first_attempt(attempt, cause_of(error), error)

    async def stop(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Stop subtasks of this attempt and all older ones; whatever does not stop is killed."""
        members = [(s, m) for s, m in list(self._fleet.members.items()) if s in subtasks]
        await asyncio.gather(*(self._stop(attempt, subtask, member) for subtask, member in members))

    async def _describe(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> list[TaskDescriptor]:
        return await asyncio.get_running_loop().run_in_executor(
            self._pool,
            describe_tasks,
            self._job_id,
            attempt,
            self._graph,
            self._config,
            restore,
            self._storage,
            subtasks,
            open_location,
        )

    async def _hand_out(
        self, attempt: int, members: Mapping[SubtaskId, FleetMember], descriptors: list[TaskDescriptor]
    ) -> FailureCause | None:
        answers = await asyncio.gather(
            *(members[d.id].handle.deploy.remote(d, self._master) for d in descriptors),
            return_exceptions=True,
        )
        causes = (
            self._failure(attempt, descriptor.id, answer)
            for descriptor, answer in zip(descriptors, answers, strict=True)
        )
        # Every answer is looked at: one that tells of a death ends the actor, too.
        return next((cause for cause in list(causes) if cause is not None), None)

    def _failure(self, attempt: int, subtask: SubtaskId, answer: object) -> FailureCause | None:
        if answer is None:
            return None
        if isinstance(answer, SubtaskFailed):
            return for_first_attempt(attempt, answer.cause(subtask), answer.location)
        if isinstance(answer, ray.exceptions.RayActorError):
            self._fleet.lose(subtask)
            return FailureCause("its process died while it was deployed", subtask)
        return FailureCause(f"it could not be deployed: {answer}", subtask)

    async def _stop(self, attempt: int, subtask: SubtaskId, member: FleetMember) -> None:
        try:
            await asyncio.wait_for(member.handle.stop.remote(attempt), self._config.cancellation_timeout)
        except TimeoutError:
            logger.warning("%s does not stop (stuck in a user's function?): its process is killed", subtask)
            self._fleet.lose(subtask)
        except Exception as error:
            # A process that is gone has stopped, too; anything else is told.
            if not isinstance(error, ray.exceptions.RayActorError):
                logger.warning("%s can't be stopped, its process is killed: %s", subtask, error)
            if self._fleet.members.get(subtask) is member:
                self._fleet.lose(subtask)
