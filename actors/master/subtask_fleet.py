"""The subtask actors of one job: created, kept over attempts, found again, ended.

An actor costs about a second to start, so a restart keeps those that live. They are detached and named, so a
JobMaster that comes back from a crash finds them by name and takes them over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle

from penstock.actors.shared.names import NAMESPACE, parse_subtask_name, subtask_name
from penstock.actors.subtask.subtask_actor import SubtaskActor
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import DeploymentError
from penstock.runtime.graph.execution_graph import ExecutionGraph, ExecutionSubtask
from penstock.runtime.snapshot.subtask_id import SubtaskId

logger = logging.getLogger(__name__)

#: Calls that an actor must be able to hold besides deliveries: control, leases, statistics.
_CONTROL_CALLS = 1_000
#: Seconds within which an actor that was left behind must answer.
_TAKE_OVER_TIMEOUT = 10.0
#: Barriers, markers and ends that may be on their way on one channel besides its credits.
_EVENTS_PER_CHANNEL = 64


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One living subtask actor.

    Attributes:
        handle: The actor.
        name: Its name in Ray.
        incarnation: The n-th actor for this subtask.
        pid: Its process.
        node_id: Its node.
    """

    handle: ActorHandle[Any]
    name: str
    incarnation: int
    pid: int
    node_id: str


class SubtaskFleet:
    """Creates and keeps the subtask actors of one job; used on the JobMaster's event loop.

    Args:
        job_id: The job.
        graph: Its subtasks.
        config: Its settings.
    """

    def __init__(self, job_id: str, graph: ExecutionGraph, config: JobConfig) -> None:
        self._job_id = job_id
        self._graph = graph
        self._config = config
        self._incarnations: dict[SubtaskId, int] = {}
        self.members: dict[SubtaskId, FleetMember] = {}

    async def adopt(self) -> None:
        """Find the actors that an earlier JobMaster of this job has left; end superfluous and silent ones."""
        for entry in ray.util.list_named_actors(all_namespaces=True):
            if entry["namespace"] != NAMESPACE:
                continue
            parsed = parse_subtask_name(self._job_id, entry["name"])
            if parsed is None:
                continue
            subtask, incarnation = parsed
            self._incarnations[subtask] = max(incarnation, self._incarnations.get(subtask, 0))
            member = await self._take_over(entry["name"], incarnation)
            if member is None:
                continue
            known = self.members.get(subtask)
            if known is None or known.incarnation < member.incarnation:
                self.members[subtask], member = member, known
            if member is not None:
                ray.kill(member.handle)

    async def ensure(self, subtasks: Collection[SubtaskId]) -> dict[SubtaskId, FleetMember]:
        """An actor for each of these subtasks, new ones where needed.

        Raises:
            DeploymentError: Some could not be placed in time; the message names what is missing.
        """
        missing = [s for s in self._graph.subtasks if s.id in subtasks and s.id not in self.members]
        created = {subtask.id: self._create(subtask) for subtask in missing}
        waiting = {
            asyncio.ensure_future(self._where(handle)): subtask_id
            for subtask_id, (_, _, handle) in created.items()
        }
        if waiting:
            try:
                done, late = await asyncio.wait(waiting, timeout=self._config.deployment_timeout)
            except asyncio.CancelledError:
                for _, _, handle in created.values():
                    ray.kill(handle)
                raise
            for future in late:
                future.cancel()
            failures = [str(f.exception()) for f in done if f.exception() is not None]
            for future in done:
                if future.exception() is None:
                    name, incarnation, handle = created[waiting[future]]
                    pid, node = future.result()
                    self.members[waiting[future]] = FleetMember(handle, name, incarnation, pid, node)
            if late or failures:
                unplaced = [waiting[f] for f in late]
                for subtask_id in unplaced:
                    ray.kill(created[subtask_id][2])
                raise DeploymentError(self._explain(unplaced, failures))
        return dict(self.members)

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job was rescaled: end the actors of subtasks that are gone or have other channels.

        How many calls an actor can hold follows from the number of its channels and can't change.
        """
        inputs = {subtask.id: len(subtask.inputs) for subtask in graph.subtasks}
        before = {subtask.id: len(subtask.inputs) for subtask in self._graph.subtasks}
        for subtask in list(self.members):
            if inputs.get(subtask) is None or inputs[subtask] != before.get(subtask):
                self.lose(subtask)
        self._graph = graph

    def lose(self, subtask: SubtaskId) -> None:
        """This actor is dead or useless; the next attempt gets a new one."""
        member = self.members.pop(subtask, None)
        if member is not None:
            ray.kill(member.handle)

    async def leave(self) -> None:
        """End all actors."""
        members, self.members = list(self.members.values()), {}
        calls = [asyncio.ensure_future(_settled(m.handle.leave.remote())) for m in members]
        if calls:
            _, late = await asyncio.wait(calls, timeout=10)
            for future in late:
                future.cancel()
        for member in members:
            ray.kill(member.handle)

    def _create(self, subtask: ExecutionSubtask) -> tuple[str, int, ActorHandle[Any]]:
        incarnation = self._incarnations.get(subtask.id, 0) + 1
        self._incarnations[subtask.id] = incarnation
        name = subtask_name(self._job_id, subtask.id, incarnation)
        channels = len(subtask.inputs) * (self._config.credits + _EVENTS_PER_CHANNEL)
        remote: Any = ray.remote(SubtaskActor)
        actor = remote.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=subtask.vertex.num_cpus,
            num_gpus=subtask.vertex.num_gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=channels + _CONTROL_CALLS,
        )
        return name, incarnation, actor.remote(self._job_id, self._config.lease_timeout)

    async def _take_over(self, name: str, incarnation: int) -> FleetMember | None:
        try:
            handle = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            return None
        try:
            pid, node = await asyncio.wait_for(self._where(handle), _TAKE_OVER_TIMEOUT)
        except (TimeoutError, ray.exceptions.RayActorError) as error:
            logger.warning("actor %s can't be taken over: it is ended (%s)", name, error)
            ray.kill(handle)
            return None
        return FleetMember(handle, name, incarnation, pid, node)

    async def _where(self, handle: ActorHandle[Any]) -> tuple[int, str]:
        where: tuple[int, str] = await handle.where.remote()
        return where

    def _explain(self, unplaced: Iterable[SubtaskId], failures: list[str]) -> str:
        parts = []
        names = [str(s) for s in unplaced]
        if names:
            vertices = [self._graph.subtask(s.id).vertex for s in self._graph.subtasks if str(s.id) in names]
            cpus, gpus = sum(v.num_cpus for v in vertices), sum(v.num_gpus for v in vertices)
            free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
            total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            parts.append(
                f"{', '.join(names)} could not be placed within {self._config.deployment_timeout:g} s: "
                f"they need {cpus:g} CPU and {gpus:g} GPU, the cluster has {total.get('CPU', 0):g} CPU "
                f"({free.get('CPU', 0):g} free) and {total.get('GPU', 0):g} GPU "
                f"({free.get('GPU', 0):g} free). Add nodes, lower num_cpus/num_gpus or the parallelism, "
                "or raise deployment_timeout"
            )
        parts.extend(failures)
        return "; ".join(parts)


async def _settled(call: Any) -> None:
    """Wait for a call whose actor leaves while it runs."""
    try:
        await call
    except ray.exceptions.RayActorError:
        return
