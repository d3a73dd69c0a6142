"""`SubtaskActor`: the Ray actor that takes the role of a subtask.

The actor is a `SubtaskRunner` (`runtime/execution/subtask_process.py`), which makes all decisions on the
actor's event loop. The loop only receives frames, control messages and leases. The subtask itself runs in a
task thread (`Attempt`).

The actor outlives attempts and jobs. A warm process has already loaded the user's modules, and Ray need not
place it. So a second job starts in 0.2 s instead of 0.7 s, although the template makes new processes cheap.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import ray
from ray.actor import ActorHandle

from penstock.actors.shared import registry
from penstock.actors.shared.cycle_collector import (
    FullCollections,
    collect_what_has_ended,
    spare_loaded_modules,
)
from penstock.actors.shared.graph_shipping import unpack_job
from penstock.actors.shared.node_processes import own_place
from penstock.actors.shared.output_capture import (
    OutputCapture,
    capture_output,
    log_key,
    log_to_ray,
    session_folder,
)
from penstock.actors.shared.process_residue import ProcessResidue
from penstock.actors.shared.system_ports import LoopTimers, SystemClock, answered
from penstock.actors.subtask.gateway import FirstArgument, RayMaster, RemotePeer, elements_of
from penstock.actors.subtask.metrics import SubtaskMetrics
from penstock.runtime.error_text import error_text
from penstock.runtime.execution.heartbeat import HeartbeatLimits, MasterGuard
from penstock.runtime.execution.processes import (
    DeliveryAnswer,
    Place,
    ProcessSpec,
    Stale,
    SubtaskFailed,
    SubtaskOutcome,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.execution.subtask_process import AttemptEvents, ProcessEnds, SubtaskRunner
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.output_samples import OutputEdge, SampledRecord

if TYPE_CHECKING:
    from penstock.actors.subtask.attempt import Attempt

logger = logging.getLogger(__name__)

#: Maximum seconds that `take` waits for the key of a job's log lines.
_KEY_TIMEOUT: Final = 5.0
#: Seconds of processor time after which a process takes no other role. A process that has served roles needs
#: up to a third more time per row, mostly to allocate records. A new process costs about a second.
_MOST_WORK: Final = 5.0
#: Seconds between the end of a role and the garbage collection, so that the answer is sent first.
_SOON: Final = 0.05


class SubtaskActor(SubtaskRunner[ActorHandle[Any], Mapping[SubtaskId, RemotePeer]]):
    """A `SubtaskRunner` as a Ray actor; `ask`, `control` and `renew` are inherited and return at once.

    Args:
        calls: Maximum number of concurrent calls.
    """

    def __init__(self, process: str, calls: int, spec: ProcessSpec) -> None:
        # For `deploy`, but loaded while other actors are being started. An import above would load it in
        # the JobMaster, too, which does not need it.
        import penstock.actors.subtask.attempt  # noqa: F401

        spare_loaded_modules(collects_fully=False)
        self._loop = asyncio.get_running_loop()
        self._machine = RayHost(self._loop, process, calls)
        super().__init__(spec, self._machine)
        self._watchdog = self._loop.create_task(self._watch_lease())

    async def prepare(self, code: tuple[bytes, ...]) -> None:
        """Load the code of a job whose role this process may take later."""
        self.renew_lease()
        await self._machine.load(code)
        self.prepared()

    async def take(self, role: Role, lease_timeout: float, heartbeat_timeout: float) -> Place | Stale:
        if self.role is None:
            self._machine.log_key = await _log_key(role.job_id)
        return self.take_role(role, lease_timeout, heartbeat_timeout)

    async def leave(self, role: Role, stays: bool) -> bool:
        """Give the role back; the process then waits for another role (`True`) or ends.

        Returns `False` and does nothing if the process holds another role.
        """
        left: bool | ProcessEnds = await answered(partial(self.leave_role, role, stays))
        if isinstance(left, ProcessEnds):
            ray.actor.exit_actor()  # type: ignore[no-untyped-call]
        if left:
            self._loop.call_later(_SOON, collect_what_has_ended)
        return bool(left)

    async def deploy(
        self, role: Role, descriptor: TaskDescriptor, master: ActorHandle[Any]
    ) -> SubtaskFailed | None:
        is_first = self.attempt is None
        deploy = partial(self.deploy_attempt, role, descriptor, master)
        failed: SubtaskFailed | None = await answered(deploy)
        if failed is None and not is_first:
            collect_what_has_ended()
        return failed

    async def run(self, role: Role, peers: Mapping[SubtaskId, RemotePeer]) -> SubtaskOutcome:
        """Run a deployed attempt to its end. This call stays open; it fails when the process dies."""
        outcome: SubtaskOutcome = await answered(partial(self.run_attempt, role, peers))
        self._machine.flush_output()
        return outcome

    async def stop(self, role: Role) -> None:
        await answered(partial(self.stop_attempt, role))

    async def deliver(
        self, token: str, attempt: int, channel: int, first: int, frame: FirstArgument, *pieces: bytes
    ) -> int:
        """Receive a frame as `arguments_of` cuts it; return the value of a `DeliveryAnswer`."""
        elements = elements_of(frame, pieces)
        take = partial(self.take_frame, token, attempt, channel, first, elements)
        answer: DeliveryAnswer = await answered(take)
        return answer.value

    async def sample(
        self, role: Role, edge: OutputEdge, most: int, seconds: float
    ) -> tuple[SampledRecord, ...]:
        """Records that the subtask of this role sends on an edge now; none if it does not run."""
        attempt = cast("Attempt | None", self.attempt)
        if attempt is None or self.role is None or not self.role.is_same_taking(role):
            return ()
        return await attempt.sample(edge, most, seconds)

    async def _watch_lease(self) -> None:
        while True:
            await asyncio.sleep(self.next_look)
            self.look_at_lease()


class RayHost:
    """The `ProcessHost` of a `SubtaskActor`; `log_key` signs the log lines of the next role's job."""

    def __init__(self, loop: asyncio.AbstractEventLoop, process: str, calls: int) -> None:
        self.clock = SystemClock()
        self.log_key: bytes | None = None
        self._loop = loop
        self._name = process
        self._calls = calls
        self._pool = _upload_threads()
        self._metrics = SubtaskMetrics()
        self._output: OutputCapture | None = None
        log_to_ray()
        self._residue = ProcessResidue(session_folder())
        self._master = RayMaster(loop)
        self._collections = FullCollections()
        self._worked_before = time.process_time()

    @property
    def place(self) -> Place:
        return own_place()

    def new_attempt(
        self, role: Role, descriptor: TaskDescriptor, master: ActorHandle[Any], events: AttemptEvents
    ) -> Attempt:
        from penstock.actors.subtask.attempt import Attempt

        self._master.handle = master
        return Attempt(
            role, descriptor, master, events, self._pool, self._metrics, self._loop, self._collections
        )

    def new_guard(self, limits: HeartbeatLimits) -> MasterGuard:
        timers = LoopTimers(self._loop, operator.call)
        return MasterGuard(limits, self.clock, timers, self._master, self._master.fell_silent)

    def refuses(self) -> str | None:
        """A user's module that was changed on disk since an earlier role or `load` imported it, if any."""
        return self._residue.changed_module()

    async def load(self, code: tuple[bytes, ...]) -> None:
        """Import the modules of a job in a thread; the deployment raises import errors again."""
        self._residue.role_taken()
        try:
            await self._loop.run_in_executor(self._pool, unpack_job, code)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            logger.info("the code of the job can't be loaded yet: %s", error_text(error))
        self._residue.note_modules()

    def role_taken(self, role: Role, *, is_prepared: bool) -> None:
        subtask = role.subtask
        self._output = capture_output(role.job_id, subtask.vertex, subtask.index, self.log_key)
        if not is_prepared:
            self._residue.role_taken()

    def role_given_back(self) -> None:
        self._master.handle = None
        self._metrics.end()
        # A running upload continues in its thread, and `ProcessResidue` finds it. Queued uploads don't start.
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = _upload_threads()
        if self._output is not None:
            self._output.release()
            self._output = None

    def flush_output(self) -> None:
        if self._output is not None:
            self._output.flush()

    def residue(self) -> str | None:
        found = self._residue.left()  # first, because a job may have replaced `time.process_time`
        if found is None and (worked := time.process_time() - self._worked_before) > _MOST_WORK:
            return f"it has worked for {worked:.1f} s of processor time"
        return found

    def note(self, what: str) -> None:
        logger.info(what)

    def exit(self, why: str, *, is_failure: bool) -> None:
        """End the process without waiting for its threads."""
        if is_failure:
            logger.error("%s: leaving", why)
        os._exit(int(is_failure))

    def withdraw_offer(self, answer: Callable[[bool], None]) -> None:
        """Withdraw the offer in a thread, so that the loop can answer a JobMaster that claims the process."""
        withdrawn = self._loop.run_in_executor(None, self._withdraw)
        withdrawn.add_done_callback(lambda future: answer(future.result()))

    def _withdraw(self) -> bool:
        """Withdraw the offer; return `True` even if that fails, because a warm process may always end."""
        try:
            return registry.withdraw(self._name, self._calls)
        except Exception:  # raised by Ray when its store can't be reached
            logger.exception("the offer of this process can't be taken back")
            return True


async def _log_key(job_id: str) -> bytes | None:
    """The key of the job's log lines; `None` when Ray's key-value store does not answer in time."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(log_key, job_id), _KEY_TIMEOUT)
    except Exception as error:  # a timeout, or Ray's error for an unreachable store
        why = f"{type(error).__name__}: {error}"
        logger.warning("`penstock logs` shows no lines of this process: %s", why)
        return None


def _upload_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="snapshot")
