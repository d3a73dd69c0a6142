"""`RayProcesses`: the processes of a job on Ray, detached actors whose names are independent of roles.

The class carries out the decisions of `runtime/execution`, and turns Ray's errors into values. All code runs
on the JobMaster's event loop, except calls that Ray's GCS must answer. These run in `ClusterCalls`, so a
process may have no handle yet; its calls wait for the handle.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from penstock.actors.master.cluster_calls import ClusterCall, ClusterCalls
from penstock.actors.shared import node_processes, registry
from penstock.actors.shared.node_processes import on_node, own_place
from penstock.actors.shared.registry import find_actor, process_name, start_actor
from penstock.actors.shared.system_ports import GuardedLoop, spawn
from penstock.actors.subtask.gateway import RemotePeer, settled
from penstock.actors.subtask.subtask_actor import SubtaskActor
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.failure_causes import cause_of
from penstock.runtime.execution.processes import (
    CallFailure,
    Counters,
    CurrentRole,
    Died,
    Peer,
    Place,
    ProcessId,
    ProcessSpec,
    Raised,
    Reply,
    Room,
    Stale,
    SubtaskFailed,
    SubtaskOutcome,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.task.output_samples import OutputEdge, SampledRecord
from penstock.runtime.time.durations import as_seconds

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: An actor, or the call that starts it.
_Handle: TypeAlias = "ActorHandle[Any] | ClusterCall[ActorHandle[Any]]"

#: Maximum number of concurrent calls to an actor besides deliveries: control, leases, statistics.
_CONTROL_CALLS: Final = 1_000
#: Maximum number of warm processes of one program; each has about 70 MB.
_MOST_WARM: Final = 16
#: Maximum seconds until the cluster has listed the processes of a job.
_FINDING: Final = 30.0
#: Seconds that the answer with a sample may be late.
_SAMPLE_DELAY: Final = 2.0
#: Maximum number of barriers, markers and ends in flight on one channel besides its credits.
_EVENTS_PER_CHANNEL: Final = 64


class RayProcesses:
    """Starts, calls and ends the processes of one job (the `Processes` port).

    Args:
        code: Chunks of the submitted job, for standby processes (see `graph_shipping`).
    """

    def __init__(
        self,
        job_id: str,
        config: JobConfig,
        master: ActorHandle[Any],
        guarded: GuardedLoop,
        cluster: ClusterCalls,
        code: tuple[bytes, ...],
    ) -> None:
        self._job_id = job_id
        self._code = code
        self._config = config
        self._master = master
        self._guarded = guarded
        self._cluster = cluster
        self._handles: dict[ProcessId, _Handle] = {}
        self._place = own_place()
        #: Reasons why processes were killed, for the answers to their open calls.
        self._killed: dict[ProcessId, str] = {}
        #: Warm processes of the program: counted at the first `leave`, then increased by each `leave`.
        self._left_warm: int | None = None

    async def find_left_behind(self) -> None:
        """Find the living processes of the job; await this before `left_behind`."""

        def look() -> dict[ProcessId, ActorHandle[Any]]:
            found = {}
            for process in registry.processes_of_job(self._job_id):
                if (handle := _find(process)) is None:
                    registry.remove_from_job(self._job_id, process)
                else:
                    found[process] = handle
            return found

        call = self._cluster.begin(f"find the processes of job {self._job_id}", look)
        self._handles.update(await call.answered(_FINDING))

    def left_behind(self) -> Sequence[ProcessId]:
        return list(self._handles)

    def claim(self, spec: ProcessSpec) -> ProcessId | None:
        if not self._config.reuse_processes or spec.occupies_resources:
            return None
        calls = self._calls(spec)

        def look() -> tuple[ProcessId, ActorHandle[Any]] | None:
            while (process := registry.claim(self._job_id, calls)) is not None:
                if (handle := _find(process)) is not None:
                    return process, handle
                registry.remove_from_job(self._job_id, process)
            return None

        def late(found: tuple[ProcessId, ActorHandle[Any]] | None) -> None:
            if found is not None:
                registry.offer(self._job_id, found[0])

        claimed = self._cluster.at_once(f"claim a process for job {self._job_id}", look, None, late)
        if claimed is None:
            return None
        process, self._handles[process] = claimed
        return process

    def start(self, spec: ProcessSpec) -> ProcessId:
        process = secrets.token_hex(6)
        start = partial(_start, self._job_id, process, self._calls(spec), spec)
        self._handles[process] = self._cluster.begin(f"start a process of job {self._job_id}", start)
        return process

    def end(self, process: ProcessId, why: str = "") -> None:
        if why:
            logger.warning("process %s of job %s is killed: %s", process, self._job_id, why)
            self._killed[process] = f"it was killed, because {why}"
        handle = self._handles.pop(process, None)
        if handle is None:
            return
        if isinstance(handle, ClusterCall):  # the call that starts the process is made first
            self._cluster.begin(f"kill process {process}", partial(_kill_started, handle))
        else:
            ray.kill(handle)
        self._remove(process)

    def forget(self, process: ProcessId) -> None:
        if self._handles.pop(process, None) is not None:
            self._remove(process)

    def offer(self, process: ProcessId) -> None:
        """Let other jobs claim a process; this job keeps no handle and no record of it."""
        if self._handles.pop(process, None) is not None:
            offer = partial(registry.offer, self._job_id, process)
            self._cluster.begin(f"offer process {process} of job {self._job_id}", offer)

    def room(self) -> Room:
        def look() -> Room:
            free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
            total: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            return Room(total, free)

        return self._cluster.at_once("see the resources of the cluster", look, Room({}, {}))

    def ask(self, process: ProcessId, reply: Reply[CurrentRole]) -> None:
        self._call(process, lambda actor: actor.ask.remote(), reply)

    def prepare(self, process: ProcessId, reply: Reply[None]) -> None:
        self._call(process, lambda actor: actor.prepare.remote(self._code), reply)

    def take(self, process: ProcessId, role: Role, reply: Reply[Place | Stale]) -> None:
        advanced = self._config.advanced
        lease, heartbeat = as_seconds(advanced.lease_timeout), as_seconds(advanced.heartbeat_timeout)
        self._call(process, lambda actor: actor.take.remote(role, lease, heartbeat), reply)

    def deploy(
        self, process: ProcessId, role: Role, descriptor: TaskDescriptor, reply: Reply[SubtaskFailed | None]
    ) -> None:
        self._call(process, lambda actor: actor.deploy.remote(role, descriptor, self._master), reply)

    def run(
        self,
        process: ProcessId,
        role: Role,
        peers: Mapping[SubtaskId, Peer],
        reply: Reply[SubtaskOutcome],
    ) -> None:
        remote = {}
        for subtask, peer in peers.items():
            handle = self._handles.get(peer.process)
            # The process holds a role, so it has started.
            if handle is not None and not isinstance(handle, ClusterCall):
                remote[subtask] = RemotePeer(handle, peer.role)
        self._call(process, lambda actor: actor.run.remote(role, remote), reply)

    def control(self, process: ProcessId, role: Role, message: SubtaskControl, reply: Reply[bool]) -> None:
        self._call(process, lambda actor: actor.control.remote(role, message), reply)

    def stop(self, process: ProcessId, role: Role, reply: Reply[None]) -> None:
        self._call(process, lambda actor: actor.stop.remote(role), reply)

    def renew(self, process: ProcessId, role: Role, guards: bool, reply: Reply[Counters | Stale]) -> None:
        """Call `renew` of a process; a process that guards the JobMaster also receives its place."""
        guarded = self._place if guards else None
        self._call(process, lambda actor: actor.renew.remote(role, guarded), reply)

    def processor_times(
        self, node_id: str, places: Sequence[Place], reply: Reply[Mapping[Place, float]]
    ) -> None:
        spawn(
            self._guarded.loop, self._answer(on_node(node_id, node_processes.processor_times, places), reply)
        )

    def leave(self, process: ProcessId, role: Role, reply: Reply[bool]) -> None:
        stays = self._config.reuse_processes and self._may_leave_warm()
        self._call(process, lambda actor: actor.leave.remote(role, stays), reply)

    def _may_leave_warm(self) -> bool:
        """Whether one more of this job's processes may wait for another job."""
        if self._left_warm is None:
            # Without an answer, assume the maximum, so that no process stays.
            self._left_warm = self._cluster.at_once(
                "count warm processes", lambda: len(registry.warm_processes()), _MOST_WARM
            )
        self._left_warm += 1
        return self._left_warm <= _MOST_WARM

    def _calls(self, spec: ProcessSpec) -> int:
        return spec.inputs * (self._config.advanced.credits + _EVENTS_PER_CHANNEL) + _CONTROL_CALLS

    def _remove(self, process: ProcessId) -> None:
        remove = partial(registry.remove_from_job, self._job_id, process)
        self._cluster.begin(f"forget process {process} of job {self._job_id}", remove)

    async def sample(
        self, process: ProcessId, role: Role, edge: OutputEdge, most: int, seconds: float
    ) -> tuple[SampledRecord, ...]:
        """Records that a subtask sends on an edge now; none if its process does not answer."""
        handle = self._handles.get(process)
        if handle is None or isinstance(handle, ClusterCall):
            return ()

        async def asked() -> tuple[SampledRecord, ...]:
            found: tuple[SampledRecord, ...] = await handle.sample.remote(role, edge, most, seconds)
            return found

        try:
            return await asyncio.wait_for(asked(), seconds + _SAMPLE_DELAY)
        except (RayError, TimeoutError):
            return ()

    def _call(
        self,
        process: ProcessId,
        make: Callable[[Any], Awaitable[T]],
        reply: Reply[T],
    ) -> None:
        handle = self._handles.get(process)
        call: Awaitable[T] | CallFailure
        if handle is None:
            call = Died("the JobMaster has ended it")
        elif isinstance(handle, ClusterCall):
            call = self._when_started(process, handle, make)
        else:
            try:
                call = make(handle)
            except Exception as error:  # its arguments can't be sent
                call = Raised(cause_of(error))
        spawn(self._guarded.loop, self._answer(call, reply, process))

    async def _when_started(
        self,
        process: ProcessId,
        start: ClusterCall[ActorHandle[Any]],
        make: Callable[[Any], Awaitable[T]],
    ) -> T:
        handle = await start.answered(None)
        if self._handles.get(process) is start:
            self._handles[process] = handle
        return await make(handle)

    async def _answer(
        self, call: Awaitable[T] | CallFailure, reply: Reply[T], process: ProcessId | None = None
    ) -> None:
        answer = call if isinstance(call, CallFailure) else await settled(call)
        if isinstance(answer, Died) and process in self._killed:
            answer = Died(self._killed[process])
        with self._guarded.guard():
            reply(answer)


def _start(job_id: str, process: ProcessId, calls: int, spec: ProcessSpec) -> ActorHandle[Any]:
    """Register a process, then start it; blocks."""
    registry.add_to_job(job_id, process, calls)
    started: ActorHandle[Any] = start_actor(
        SubtaskActor,
        process_name(process),
        process,
        calls,
        spec,
        lifetime="detached",
        num_cpus=spec.num_cpus,
        num_gpus=spec.num_gpus,
        resources=dict(spec.resources) or None,
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=calls,
    )
    return started


def _kill_started(start: ClusterCall[ActorHandle[Any]]) -> None:
    """Kill the process that an earlier call has started; blocks."""
    if start.future.exception() is None:
        ray.kill(start.future.result())


def _find(process: ProcessId) -> ActorHandle[Any] | None:
    """The handle of a process; `None` when it has ended. Blocks."""
    try:
        handle: ActorHandle[Any] = find_actor(process_name(process))
    except ValueError:
        return None
    return handle
