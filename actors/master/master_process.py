"""`MasterProcess`: the process of JobMasters, which runs one job after the other.

Half of the processor time that a small job takes is the start of its JobMaster. So a process whose job has
ended well waits for the next job of the same program, as the processes of subtasks do (`SubtaskActor`).
`ProcessResidue` detects remains of users' code that forbid it. The process ends when no job arrives for a
while.

Ray restarts a process that dies. It then finds its job in the cluster's key-value store (`registry.py`),
because it may have taken another job since its start. A process that had no job leaves. It never repeats a
job that has ended, because its key is emptied before the next program can claim it.

Only a starting process reads that store by itself, since no caller waits for it yet. Later `ClusterCalls`
does that, so that a store that does not answer holds up nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import ray

from penstock.actors.master.cluster_calls import ClusterCalls, ClusterTimeoutError
from penstock.actors.master.job_runner import JobRunner
from penstock.actors.shared import registry
from penstock.actors.shared.log_files import log_key
from penstock.actors.shared.output_capture import log_to_ray, session_folder
from penstock.actors.shared.process_residue import ProcessResidue
from penstock.actors.shared.registry import SubmittedJob
from penstock.actors.shared.system_ports import collect_what_has_ended, spare_loaded_modules

logger = logging.getLogger(__name__)

#: Seconds that an ended job still answers when its process leaves, so that waiting clients learn of the end.
_FAREWELL: Final = 5.0
#: Seconds that a process without a job waits for one.
_WARM: Final = 60.0
#: Seconds that a process waits for an optional call of the cluster.
_NOTING: Final = 10.0
#: Seconds that a process that takes a job, or leaves, waits for the cluster.
_LAST_NOTES: Final = 60.0
#: Seconds after which a process whose job has ended collects garbage; the last answers have left then.
_SOON: Final = 0.05
#: Maximum number of waiting JobMaster processes in a cluster.
_MOST_WARM: Final = 16
#: Maximum number of jobs of a process; bounds the memory that users' code leaves behind.
_MOST_JOBS: Final = 50


class MasterProcess:
    """Runs the jobs of one process; to be made in the actor's event loop.

    Args:
        first: The process's first job, without its chunks.

    Attributes:
        current: Runner of the current or last job; `None` while the process waits for one.
    """

    def __init__(self, process: str, first: SubmittedJob, chunks: tuple[bytes, ...]) -> None:
        spare_loaded_modules()
        first = replace(first, chunks=chunks)
        self._loop = asyncio.get_running_loop()
        self._process = process
        #: Distinguishes this process from others of the same actor, which share its name and its calls.
        self._incarnation = secrets.token_hex(8)
        self._cluster = ClusterCalls()
        log_to_ray()
        self._traces = ProcessResidue(session_folder())  # its thread is no trace of a job
        self._jobs = 0
        self.current: JobRunner | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._came_back: bool = ray.get_runtime_context().was_current_actor_reconstructed
        if not self._came_back:
            # The program that submits the job gets an error of these calls.
            registry.set_master(first.job_id, process)
            self._begin(first, log_key(first.job_id))
            return
        try:
            job = registry.kept_job(process, first)
            if job is None:
                self._leave_soon()
            else:
                registry.set_master(job.job_id, process)
                self._begin(job, log_key(job.job_id))
        except Exception:  # Ray's error when its store can't be reached
            logger.exception("this JobMaster can't find its job; Ray restarts it")
            os._exit(1)

    def runner(self, job_id: str) -> JobRunner:
        """Return the runner of a job that runs here, or that has ended and still answers.

        Raises:
            ValueError: The process runs another job or none.
        """
        if self.current is None or self.current.job_id != job_id:
            msg = f"this process is not the JobMaster of {job_id}"
            raise ValueError(msg)
        return self.current

    async def take(self, job: SubmittedJob) -> bool:
        """Run another job; `False` when this process has one, or must not run another."""
        if self._patience is None:
            return False
        self._patience.cancel()
        self._patience = None
        if changed := self._traces.changed_module():
            logger.info("this process takes no other job: %s", changed)
            self._leave_soon()
            return False
        self._came_back = False
        accept = partial(_accept, self._process, job)
        try:
            key = await self._cluster.begin(f"accept job {job.job_id}", accept).answered(_LAST_NOTES)
            if key is not None:
                self._begin(job, key)
        except Exception:  # Ray's error when its store can't be reached
            logger.exception("this process can't begin job %s; Ray restarts it", job.job_id)
            os._exit(1)
        if key is None:
            logger.info("job %s was taken back: this process leaves", job.job_id)
            self._leave_soon()
        return key is not None

    def leave(self, incarnation: str) -> bool:
        """End this actor for good. A process calls itself; `False` says that another process got the call."""
        if incarnation == self._incarnation:
            ray.actor.exit_actor()  # type: ignore[no-untyped-call]
        return False

    # -- from job to job ------------------------------------------------------------------------------------

    def _begin(self, job: SubmittedJob, key: bytes) -> None:
        """Begin a job whose JobMaster this process is in the registry."""
        self._jobs += 1
        self._traces.role_taken()
        self.current = JobRunner(
            job, self._came_back, self._cluster, key, on_over=self._job_over, on_fenced=self._fenced
        )

    def _fenced(self, job_id: str) -> None:
        """End this process: another one has begun an attempt of the job.

        The other one may be a process that the cluster counts as dead, and that ends soon. If this one left
        for good, the job would then have no JobMaster. So this process dies, and Ray restarts it. Ray does
        not restart a process in whose place it has started another one already.
        """
        self._spawn(self._give_way(job_id))

    async def _give_way(self, job_id: str) -> None:
        ask = partial(registry.is_master, job_id, self._process)
        try:
            is_gone = not await self._cluster.begin(f"ask who is the JobMaster of {job_id}", ask).answered(
                _NOTING
            )
        except Exception:  # Ray's error when its store can't be reached
            logger.exception("this process can't ask who is the JobMaster of %s", job_id)
            is_gone = False
        if is_gone:
            self._leave_soon()
            return
        logger.warning(
            "another process has begun an attempt of %s: this one ends, and Ray restarts it", job_id
        )
        os._exit(1)

    async def _job_over(self, runner: JobRunner, may_stay: bool) -> None:
        """Wait for another job, or leave; called when the job's report is kept."""
        runner.retire()
        if may_stay:
            try:
                why = await self._why_not_again()
                if why is None:
                    await self._wait_for_another(runner)
                    return
            except Exception:  # Ray's error when its store can't be reached
                logger.exception("this process takes no other job")
            else:
                logger.info("this process takes no other job: %s", why)
        self._loop.call_later(_FAREWELL, lambda: self._spawn(self._leave_job(runner.job_id)))

    async def _wait_for_another(self, runner: JobRunner) -> None:
        """Forget the job, then offer this process; a job may arrive before the answer to the offer."""
        forget = partial(_forget_job, self._process, runner.job_id)
        await self._cluster.begin(f"note that job {runner.job_id} has left", forget).answered(_NOTING)
        runner.release_output()
        self.current = None
        self._patience = self._loop.call_later(_WARM, self._waited, True)
        self._loop.call_later(_SOON, self._collect)
        offer = partial(registry.offer_master, self._process)
        # Without an answer this process waits as if it had been offered, and withdraws the offer later.
        with suppress(ClusterTimeoutError, ray.exceptions.RayError):
            await self._cluster.begin("offer this process", offer).answered(_NOTING)

    def _collect(self) -> None:
        if self.current is None:
            collect_what_has_ended()

    async def _leave_job(self, job_id: str) -> None:
        """Leave when the cluster has noted it; the call to keep the job's report comes before."""
        forget = partial(_forget_job, self._process, job_id)
        try:
            await self._cluster.begin(f"note that job {job_id} has left", forget).answered(_LAST_NOTES)
        except Exception:  # Ray's error when its store can't be reached
            logger.exception("this process leaves all the same")
        self._leave_soon()

    async def _why_not_again(self) -> str | None:
        if self._came_back:
            return "Ray has restarted it"
        if self._jobs >= _MOST_JOBS:
            return f"it has run {self._jobs} jobs"
        counted = self._cluster.begin("count warm JobMasters", registry.warm_masters)
        if len(await counted.answered(_NOTING)) >= _MOST_WARM:
            return f"{_MOST_WARM} others wait"
        return self._traces.left()

    def _waited(self, may_be_claimed: bool) -> None:
        self._spawn(self._wait_no_longer(may_be_claimed))

    async def _wait_no_longer(self, may_be_claimed: bool) -> None:
        """Leave without a job; a program that claims the process just now gets the same time again."""
        is_free = not may_be_claimed or await self._withdraws()
        if self._patience is None:
            return  # it was given a job meanwhile
        if not is_free:
            self._patience = self._loop.call_later(_WARM, self._waited, False)
            return
        self._patience = None
        self._leave_soon()

    async def _withdraws(self) -> bool:
        """Withdraw the offer; also true when that fails, because a process without a job may always end."""
        withdraw = partial(registry.claim_master, self._process)
        try:
            return await self._cluster.begin("take the offer of this process back", withdraw).answered(
                _NOTING
            )
        except Exception:  # Ray's error when its store can't be reached
            logger.exception("the offer of this process can't be taken back")
            return True

    def _leave_soon(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._spawn(self._leave())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _leave(self) -> None:
        job = None if self.current is None else self.current.job_id
        try:
            left = await ray.get_runtime_context().current_actor.leave.remote(self._incarnation)
        except ray.exceptions.RayActorError:
            return  # this process is the one that leaves
        if left is False:
            logger.error("another process is the JobMaster of %s: this one ends", job)
            os._exit(1)


def _accept(process: str, job: SubmittedJob) -> bytes | None:
    """Note that a process has its job; returns the key of its lines, or `None` if the job was withdrawn.

    Blocks.
    """
    registry.keep_job(process, job)
    if not registry.accept_job(job.job_id):
        registry.keep_job(process, None)
        return None
    registry.set_master(job.job_id, process)
    return log_key(job.job_id)


def _forget_job(process: str, job_id: str) -> None:
    """Note that a process has no job any more; blocks."""
    registry.keep_job(process, None)
    registry.remove_master(job_id)
