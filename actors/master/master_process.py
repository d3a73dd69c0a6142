"""`MasterProcess`: an actor process on Ray that is the JobMaster of one job after another.

A small job spends half of its processor time on the start of its JobMaster. So a process whose job has
finished, or was cancelled, waits for the next job of the same program, as `SubtaskActor` does. `MasterRunner`
decides whether the process waits; `ProcessResidue` detects leftovers of users' code that forbid it.

Ray restarts a process that dies. The new process finds its job in the cluster's key-value store
(`registry.py`), because the old one may have taken another job since its start. It never repeats a job that
has ended: the process's key is emptied before the program can claim the process again.

Only a starting process calls that store in its event loop, because it has no callers yet. Later calls run in
the thread of `ClusterCalls`, so a silent store does not block the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import ray

from penstock.actors.master.cluster_calls import ClusterCalls
from penstock.actors.master.job_runner import JobRunner
from penstock.actors.shared import registry
from penstock.actors.shared.cycle_collector import collect_what_has_ended, spare_loaded_modules
from penstock.actors.shared.output_capture import log_key, log_to_ray, session_folder
from penstock.actors.shared.process_residue import ProcessResidue
from penstock.actors.shared.registry import SubmittedJob
from penstock.actors.shared.system_ports import LoopTimers, answered, spawn
from penstock.runtime.execution.job_lifecycle import Then
from penstock.runtime.execution.master_process import LAST_NOTES, NOTING, MasterRunner

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds from the end of a job to the collection of its garbage; the last answers are sent by then.
_SOON: Final = 0.05


class MasterProcess:
    """Serves the calls of one process, and is its `MasterHost`; create it in the actor's event loop."""

    def __init__(self, process: str, first: SubmittedJob, chunks: tuple[bytes, ...]) -> None:
        spare_loaded_modules()
        first = replace(first, chunks=chunks)
        self._loop = asyncio.get_running_loop()
        self._process = process
        #: Distinguishes the incarnations of the actor: Ray may deliver a call for one of them to another.
        self._incarnation = secrets.token_hex(8)
        self._cluster = ClusterCalls()
        log_to_ray()
        self._residue = ProcessResidue(session_folder())  # after `ClusterCalls` has started its thread
        #: Key of the log lines of the job that begins next.
        self._log_key = b""
        is_restart: bool = ray.get_runtime_context().was_current_actor_reconstructed
        timers = LoopTimers(self._loop, self._decide)
        self.runner: MasterRunner[SubmittedJob, JobRunner] = MasterRunner(self, timers, is_restart=is_restart)
        if not is_restart:
            # An error of these calls reaches the program that submits the job.
            self._register(first)
            self.runner.begin(first)
            return
        try:
            job = registry.kept_job(process, first)
            if job is not None:
                self._register(job)
            self.runner.begin(job)
        except Exception:  # Ray's error when its store can't be reached
            logger.exception("this JobMaster can't find its job")
            self.die("it does not know its job")

    async def take(self, job: SubmittedJob) -> bool:
        is_taken: bool = await answered(lambda answer: self._decide(partial(self.runner.take, job, answer)))
        return is_taken

    def leave_if(self, incarnation: str) -> bool:
        """End this actor for good; `False` if Ray delivered the call to another incarnation."""
        if incarnation == self._incarnation:
            ray.actor.exit_actor()  # type: ignore[no-untyped-call]
        return False

    # -- MasterHost -----------------------------------------------------------------------------------------

    def begin(self, job: SubmittedJob, *, is_restart: bool) -> JobRunner:
        self._residue.role_taken()
        return JobRunner(
            job,
            is_restart,
            self._cluster,
            self._log_key,
            on_over=self.runner.job_over,
            on_fenced=lambda: self.runner.fenced(job.job_id),
        )

    def accept(self, job: SubmittedJob, answer: Callable[[bool | None], None]) -> None:
        self._ask(f"accept job {job.job_id}", partial(self._accept, job), LAST_NOTES, answer)

    def forget(self, job_id: str, within: float, answer: Callable[[bool | None], None]) -> None:
        forget = partial(_forget_job, self._process, job_id)
        self._ask(f"unregister from job {job_id}", forget, within, answer)

    def is_master(self, job_id: str, answer: Callable[[bool | None], None]) -> None:
        ask = partial(registry.is_master, job_id, self._process)
        self._ask(f"ask which process is the JobMaster of {job_id}", ask, NOTING, answer)

    def count_waiting(self, answer: Callable[[int | None], None]) -> None:
        self._ask("count warm JobMasters", lambda: len(registry.warm_masters()), NOTING, answer)

    def offer(self, then: Then) -> None:
        offer = partial(registry.offer_master, self._process)
        self._ask("offer this process", offer, NOTING, lambda _: then())

    def withdraw_offer(self, answer: Callable[[bool | None], None]) -> None:
        withdraw = partial(registry.claim_master, self._process)
        self._ask("withdraw the offer of this process", withdraw, NOTING, answer)

    def waits(self, run: JobRunner) -> None:
        run.release_output()
        self._loop.call_later(_SOON, self._collect)

    def refuses(self) -> str | None:
        return self._residue.changed_module()

    def residue(self) -> str | None:
        return self._residue.left()

    def note(self, what: str) -> None:
        logger.info("%s", what)

    def leave(self) -> None:
        spawn(self._loop, self._leave())

    def die(self, why: str) -> None:
        logger.critical("this JobMaster ends, and Ray restarts it: %s", why)
        os._exit(1)

    # -- helpers --------------------------------------------------------------------------------------------

    def _ask(
        self, what: str, make: Callable[[], T], within: float, answer: Callable[[T | None], None]
    ) -> None:
        """Make a call to the cluster's store; `answer` gets `None` if it fails or takes too long."""

        async def ask() -> None:
            outcome: T | None = None
            try:
                outcome = await self._cluster.begin(what, make).answered(within)
            except Exception:  # Ray's error when its store can't be reached
                logger.exception("this process can't %s", what)
            self._decide(partial(answer, outcome))

        spawn(self._loop, ask())

    def _decide(self, decision: Callable[[], None]) -> None:
        """Run a decision. After an error the process dies: otherwise it might never run a job or leave."""
        try:
            decision()
        except Exception:
            logger.exception("a decision of this JobMaster's process failed")
            self.die("it can't begin, end or take a job")

    def _accept(self, job: SubmittedJob) -> bool:
        """Record that this process has the job; `False` if the program has withdrawn the job. Blocks."""
        registry.keep_job(self._process, job)
        if not registry.accept_job(job.job_id):
            registry.keep_job(self._process, None)
            return False
        self._register(job)
        return True

    def _register(self, job: SubmittedJob) -> None:
        """Register this process as the job's JobMaster. Blocks."""
        registry.set_master(job.job_id, self._process)
        self._log_key = log_key(job.job_id)

    def _collect(self) -> None:
        if self.runner.current is None:
            collect_what_has_ended()

    async def _leave(self) -> None:
        job = None if self.runner.current is None else self.runner.current.job_id
        try:
            left = await ray.get_runtime_context().current_actor.leave.remote(self._incarnation)
        except ray.exceptions.RayActorError:
            return  # this process is the one that leaves
        if left is False:
            logger.error("another process is the JobMaster of %s: this one ends", job)
            os._exit(1)


def _forget_job(process: str, job_id: str) -> bool:
    """Record that a process no longer has a job. Blocks."""
    registry.keep_job(process, None)
    registry.remove_master(job_id)
    return True
