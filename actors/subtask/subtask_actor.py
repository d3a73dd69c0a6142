"""`SubtaskActor`: the Ray actor that takes the role of a subtask.

Its event loop only receives: frames, control, leases. The subtask itself runs in a task thread (`Attempt`).
The actor outlives attempts: after a failure elsewhere it is deployed again, which saves starting a process.
[RoleHolder][penstock.runtime.execution.role.RoleHolder] decides which calls it takes, and
[Lease][penstock.runtime.execution.deadlines.Lease] when it ends itself. An actor that hears from no JobMaster
for `lease_timeout` leaves. So no orphan stays on the cluster, whatever died first.

It outlives jobs, too. After a successful job it gives its role back and stays warm for a while. The next job
of the same program uses it instead of starting a process. `ProcessResidue` says when that is not safe.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.actor import ActorHandle

from penstock.actors.shared import registry
from penstock.actors.shared.graph_shipping import unpack_job
from penstock.actors.shared.log_files import log_key
from penstock.actors.shared.node_processes import own_place
from penstock.actors.shared.output_capture import OutputCapture, capture_subtask, log_to_ray, session_folder
from penstock.actors.shared.process_residue import ProcessResidue
from penstock.actors.shared.system_ports import (
    LoopTimers,
    SystemClock,
    collect_what_has_ended,
    spare_loaded_modules,
)
from penstock.actors.subtask.master_link import RayMaster
from penstock.actors.subtask.metrics import SubtaskMetrics
from penstock.actors.subtask.remote_channels import FirstArgument, RemotePeer, elements_of
from penstock.runtime.error_text import error_text
from penstock.runtime.execution.deadlines import Lease
from penstock.runtime.execution.deliveries import DeliveryAnswer
from penstock.runtime.execution.heartbeat import HeartbeatLimits
from penstock.runtime.execution.master_guard import OVERDUE, MasterGuard
from penstock.runtime.execution.messages import SubtaskFailed, SubtaskOutcome, SubtaskStopped
from penstock.runtime.execution.processes import Counters, Held, Needs, Place, Stale
from penstock.runtime.execution.role import CallFit, Role, RoleHolder
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor

if TYPE_CHECKING:
    from penstock.actors.subtask.attempt import Attempt

logger = logging.getLogger(__name__)

_STALE, _NOT_YET = DeliveryAnswer.STALE.value, DeliveryAnswer.NOT_YET.value


#: Seconds that a process without a role waits for one.
_WARM: Final = 60.0
#: Seconds to wait for the key of a job's lines; its role is not held up for longer.
_KEY_TIMEOUT: Final = 5.0
#: Seconds after which a process looks at its lease again.
_LONGEST_SLEEP: Final = _WARM / 4
#: Seconds after which a process that has given its role back collects garbage; its answer has left then.
_SOON: Final = 0.05
#: Roles that a process takes in its life; bounds what users' code leaves in its memory.
_MOST_ROLES: Final = 50


class SubtaskActor:
    """Runs the attempts of one subtask, one after the other, for as long as it holds that role.

    Args:
        process: Its name in the cluster's registry of processes.
        calls: Calls that it can hold at the same time.
        needs: What it was started with.
    """

    def __init__(self, process: str, calls: int, needs: Needs) -> None:
        # For `deploy`, but loaded while other actors are being started. An import above would load it in
        # the JobMaster, too, which does not need it.
        import penstock.actors.subtask.attempt  # noqa: F401

        spare_loaded_modules()
        self._process = process
        self._calls = calls
        self._needs = needs
        self._lease = Lease(_WARM, time.monotonic())
        self._holder = RoleHolder()
        self._roles = 0
        self._has_failed = False
        self._may_be_offered = False
        #: Whether the modules of the next role are loaded already.
        self._is_prepared = False
        self._attempt: Attempt | None = None
        self._pool = _upload_threads()
        self._loop = asyncio.get_running_loop()
        self._watchdog = self._loop.create_task(self._watch_lease())
        self._metrics = SubtaskMetrics()
        self._output: OutputCapture | None = None
        log_to_ray()
        self._traces = ProcessResidue(session_folder())
        self._master = RayMaster(self._loop)
        self._guard: MasterGuard | None = None

    # -- the role -------------------------------------------------------------------------------------------

    async def ask(self) -> Held:
        """What this process holds, and where it runs; for a JobMaster that was restarted."""
        if self._holder.role is None:
            self._lease.renew(time.monotonic())
        return Held(self._holder.role, self._needs, own_place(), self._is_prepared)

    async def prepare(self, code: tuple[bytes, ...]) -> None:
        """Load the code of a job, whose role this process may take later.

        Its modules are imported in a thread, as they are users' code. Whatever that raises, a deployment
        raises again, where it is told with its operator.
        """
        self._lease.renew(time.monotonic())
        self._traces.role_taken()
        try:
            await self._loop.run_in_executor(self._pool, unpack_job, code)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            logger.info("the code of the job can't be loaded yet: %s", error_text(error))
        self._traces.note_modules()
        self._is_prepared = True

    async def take(self, role: Role, lease_timeout: float, heartbeat_timeout: float) -> Place | Stale:
        """Take a role; `Stale` when this process holds another one, or when no other job may run here.

        Args:
            lease_timeout: Seconds without a call of the JobMaster after which the actor ends itself.
            heartbeat_timeout: Seconds after which a JobMaster that stands still is killed by its guards.
        """
        key = await _log_key(role.job_id) if self._holder.role is None else None
        is_free = self._holder.role is None
        if is_free and (changed := self._traces.changed_module()):
            logger.info("this process takes no other role: %s", changed)
            return Stale()
        if not self._holder.take(role):
            return Stale()
        self._lease.change(lease_timeout, time.monotonic())
        if is_free:
            self._guard = self._new_guard(HeartbeatLimits.of(heartbeat_timeout, lease_timeout * OVERDUE))
            self._output = capture_subtask(role.job_id, role.subtask, key)
            if not self._is_prepared:
                self._traces.role_taken()
            self._is_prepared = False
            self._roles += 1
        return own_place()

    async def give_back(self, role: Role) -> bool:
        """Stop what runs and give the role back; `False` when this process does not hold it."""
        held = self._holder.role
        if held is None or not held.is_same_taking(role):
            return False
        await self._stop_current(held)
        if not self._holder.give_back(role):
            return False
        if self._attempt is not None:
            self._attempt.end_reports()
            self._attempt = None
        if self._guard is not None:
            self._guard.end()
            self._guard = self._master.handle = None
        self._metrics.end()
        # An upload that still runs goes on in its thread, which `ProcessResidue` sees. Others do not begin.
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = _upload_threads()
        if self._output is not None:
            self._output.release()
            self._output = None
        return True

    async def leave(self, role: Role, stays: bool) -> bool:
        """Give the role back. `True` when the process then waits for another role, otherwise it ends.

        Args:
            role: The role; nothing happens when the process holds another one.
            stays: Whether the job allows other jobs to use the process.
        """
        if not await self.give_back(role):
            return False
        why = self._why_not_again() if stays else "the job does not allow it"
        if why is not None:
            logger.info("this process takes no other role: %s", why)
            ray.actor.exit_actor()  # type: ignore[no-untyped-call]
        self._lease.change(_WARM, time.monotonic())
        self._may_be_offered = True
        self._loop.call_later(_SOON, collect_what_has_ended)
        return True

    def _why_not_again(self) -> str | None:
        if self._has_failed:
            return "users' code has failed here"
        if self._needs.occupies_resources:
            return "it occupies resources"
        if self._roles >= _MOST_ROLES:
            return f"it has taken {self._roles} roles"
        return self._traces.left()

    # -- calls of the JobMaster -----------------------------------------------------------------------------

    async def deploy(
        self, role: Role, descriptor: TaskDescriptor, master: ActorHandle[Any]
    ) -> SubtaskFailed | None:
        """Build and restore the subtask of a new attempt; returns why that failed, else `None`."""
        from penstock.actors.subtask.attempt import Attempt
        from penstock.runtime.execution.failure_causes import describe_failure

        self._renew(role)
        if not self._holder.deploy(role):
            return SubtaskFailed(f"{role} is past", "")
        self._master.handle = master
        previous = self._attempt
        if previous is not None and previous.outcome is None:
            await previous.stop()
        if not self._holder.may_deploy(role):
            return SubtaskFailed(f"{role} is past", "")
        self._holder.begin(role)
        self._attempt = attempt = Attempt(role, descriptor, master, self._pool, self._loop)
        try:
            await attempt.deploy()
        except Exception as error:
            attempt.outcome = describe_failure(error)
            self._has_failed = True
            return attempt.outcome
        if previous is not None:
            previous = None
            collect_what_has_ended()
        return None

    async def run(self, role: Role, peers: Mapping[SubtaskId, RemotePeer]) -> SubtaskOutcome:
        """Run a deployed attempt to its end. This call stays open; it fails when the process dies."""
        current = self._current(role)
        if current is None:
            return SubtaskStopped()
        current.start(peers)
        self._metrics.begin(role.job_id, current.descriptor.job_name, role.subtask, current.statistics)
        outcome = await current.run()
        self._has_failed = self._has_failed or isinstance(outcome, SubtaskFailed)
        if self._output is not None:
            self._output.flush()
        return outcome

    async def control(self, role: Role, message: SubtaskControl) -> bool:
        """Take a message of the JobMaster; `False` for another attempt, or one that is over."""
        self._renew(role)
        current = self._current(role)
        if current is None or current.outcome is not None:
            return False
        current.control(message)
        return True

    async def stop(self, role: Role) -> None:
        """Stop this attempt, or an older one that still runs, and wait until it is closed."""
        self._renew(role)
        await self._stop_current(role)

    async def renew(self, role: Role, guarded: Place | None = None) -> Counters | Stale:
        """Renew the lease; returns the counters and the attempt that they belong to.

        Args:
            guarded: Where the JobMaster runs, if this process guards it.
        """
        if not self._holder.holds(role):
            return Stale()
        self._lease.renew(time.monotonic())
        if self._guard is not None:
            self._guard.renewed(guarded)
        attempt = self._attempt
        if attempt is None:
            return Counters(0, None)
        return Counters(attempt.role.attempt, attempt.statistics(), attempt.long_call())

    # -- calls of other subtasks ----------------------------------------------------------------------------

    async def deliver(
        self, token: str, attempt: int, channel: int, first: int, frame: FirstArgument, *pieces: bytes
    ) -> int:
        """Take a frame of a channel, as `arguments_of` gives it.

        The return, the value of a `DeliveryAnswer`, is the sender's credit.
        """
        fit, current = self._holder.fit(token, attempt), self._attempt
        if fit is CallFit.STALE:
            return _STALE
        if fit is CallFit.NOT_YET or current is None:
            return _NOT_YET
        answer = await current.deliver(channel, first, elements_of(frame, pieces))
        return answer.value

    # -- how it is done -------------------------------------------------------------------------------------

    def _renew(self, role: Role) -> None:
        if self._holder.holds(role):
            self._lease.renew(time.monotonic())

    def _new_guard(self, limits: HeartbeatLimits) -> MasterGuard:
        timers = LoopTimers(self._loop, _run)
        return MasterGuard(limits, SystemClock(), timers, self._master, self._master.fell_silent)

    def _current(self, role: Role) -> Attempt | None:
        is_current = self._holder.fit(role.token, role.attempt) is CallFit.CURRENT
        return self._attempt if is_current else None

    async def _stop_current(self, role: Role) -> None:
        covers, current = self._holder.stop(role), self._attempt
        if covers and current is not None and current.outcome is None:
            await current.stop()
            self._has_failed = self._has_failed or isinstance(current.outcome, SubtaskFailed)

    def _withdraws(self) -> bool:
        """Take the offer back; also true when that fails, because a warm process may always end."""
        try:
            return registry.withdraw(self._process, self._calls)
        except Exception:  # what Ray raises when its store can't be reached
            logger.exception("the offer of this process can't be taken back")
            return True

    async def _watch_lease(self) -> None:
        while True:
            # The lease may get another timeout meanwhile, a shorter one.
            await asyncio.sleep(min(self._lease.interval, _LONGEST_SLEEP))
            if not self._lease.is_over(time.monotonic()):
                continue
            if self._holder.role is None:
                if not self._may_be_offered:
                    os._exit(0)  # it was claimed or started, and its JobMaster died before it gave a role
                self._may_be_offered = False
                # In a thread: a JobMaster may claim the process meanwhile, and wants answers.
                is_free = await asyncio.to_thread(self._withdraws)
                if is_free and self._holder.role is None:
                    os._exit(0)
                # A JobMaster may have claimed it, and has one more lease to give a role.
                self._lease.renew(time.monotonic())
                continue
            silent = self._lease.silent
            logger.error("%s heard from no JobMaster for %.0f s: leaving", self._holder.role, silent)
            # The task thread may be stuck in users' code, so the process is ended, not asked.
            os._exit(1)


async def _log_key(job_id: str) -> bytes | None:
    """The key of the job's lines; `None` when Ray's key-value store does not give it soon."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(log_key, job_id), _KEY_TIMEOUT)
    except Exception as error:  # a timeout, or what Ray raises when its store can't be reached
        why = f"{type(error).__name__}: {error}"
        logger.warning("`penstock logs` gets nothing of this process: %s", why)
        return None


def _upload_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="snapshot")


def _run(callback: Callable[[], None]) -> None:
    callback()
