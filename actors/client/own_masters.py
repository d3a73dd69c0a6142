"""`OwnMasters`: the JobMasters that this program has started; warm JobMasters wait for another job.

Only the program that has started a process gives it another job. So both jobs have the same runtime
environment and the same modules.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final

import ray

from penstock.actors.client.interrupts import interrupts_delivered, name_job
from penstock.actors.master.job_master import JobMaster
from penstock.actors.shared import registry
from penstock.actors.shared.actor_calls import RepeatedCall
from penstock.actors.shared.registry import SubmittedJob, find_actor, master_name, start_master
from penstock.runtime.errors import DeploymentError

logger = logging.getLogger(__name__)

_START_TIMEOUT: Final = 60.0
#: Maximum number of starts of a JobMaster that dies before its job has begun; then the submission fails.
_STARTS: Final = 3
#: Seconds for a JobMaster to accept the cancellation of a job that it may not have begun yet.
_CANCEL_TIMEOUT: Final = 30.0
#: Seconds for a warm process to accept a job.
_TAKE_TIMEOUT: Final = 5.0


class OwnMasters:
    """Begins jobs in a warm JobMaster or in a new one. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[str] = []
        self._cluster: object = None

    def begin(self, submitted: Callable[[], SubmittedJob], may_reuse: bool) -> str:
        job = submitted()
        master = self._reused(job) if may_reuse else None
        if master is None:
            # A warm process may have taken the job although its answer was lost. So the job gets a new id
            # for the new process.
            job = submitted()
            master = self._started(job)
        try:
            with suppress(ValueError), interrupts_delivered():  # the job may have ended already
                _wait_until_ready(master, job.job_id)
        except TimeoutError as error:
            ray.kill(master)
            msg = (
                f"the JobMaster of '{job.name}' did not start within {_START_TIMEOUT:g} s: "
                "the cluster may have no free worker process (look at `ray status`)"
            )
            raise DeploymentError(msg) from error
        except BaseException as stop:
            _cancel(master, job.job_id, stop)
            raise
        return job.job_id

    def _started(self, job: SubmittedJob) -> Any:
        process, master = start_master(JobMaster, job)
        with self._lock:
            self._processes.append(process)
        return master

    def _reused(self, job: SubmittedJob) -> Any | None:
        """Return the warm process that took the job; `None` if none was waiting, or it failed or refused."""
        for process in self._known():
            if registry.claim_master(process):
                return self._given(process, job)
        return None

    def _given(self, process: str, job: SubmittedJob) -> Any | None:
        try:
            master = find_actor(master_name(process))
        except ValueError:
            return None  # the process has ended
        registry.give_job(job.job_id)
        answer = master.take.remote(job)
        try:
            with interrupts_delivered():
                taken = ray.get(answer, timeout=_TAKE_TIMEOUT)
        except ray.exceptions.RayError as error:
            if not registry.accept_job(job.job_id):
                return master  # the process has the job, and Ray restarts it when it dies
            logger.info(
                "a warm JobMaster does not take job '%s', so a new one is started: %s", job.name, error
            )
            ray.kill(master)
            return None
        except BaseException as stop:
            if registry.accept_job(job.job_id):
                ray.kill(master)  # so that the process can't take the job any more
            else:
                _cancel(master, job.job_id, stop, answer)
            raise
        if not taken:
            registry.accept_job(job.job_id)  # take the job back, because no process accepts it now
        return master if taken else None

    def _known(self) -> list[str]:
        """Return the processes in this cluster, newest first; forgets those that have ended."""
        context = ray.get_runtime_context()
        cluster = (context.gcs_address, context.get_job_id())
        with self._lock:
            if cluster != self._cluster:
                self._processes, self._cluster = [], cluster
            known = self._processes[::-1]
        actors = registry.living_actors()
        living = [process for process in known if master_name(process) in actors]
        for process in set(known) - set(living):
            self._forget(process)
        return living

    def _forget(self, process: str) -> None:
        with self._lock:
            self._processes = [other for other in self._processes if other != process]
        registry.forget_process(process)


def _wait_until_ready(master: Any, job_id: str) -> None:
    """Wait until the job has begun; repeat the call when the JobMaster dies, because Ray restarts it.

    Raises:
        TimeoutError: The job has not begun within `_START_TIMEOUT`.
        ray.exceptions.RayActorError: The JobMaster has died too often, or Ray does not restart it.
        ValueError: The process no longer runs the job.
    """
    deaths_left = _STARTS

    def patience(error: BaseException) -> float | None:
        nonlocal deaths_left
        if isinstance(error, ray.exceptions.RayActorError):
            # A restarting actor refuses each call at once; such a refusal is not a death.
            if not isinstance(error, ray.exceptions.ActorUnavailableError):
                deaths_left -= 1
            return inf if deaths_left else None
        return None

    ready = RepeatedCall[None](lambda: master.ready.remote(job_id), "the JobMaster", patience)
    if not ready.wait(_START_TIMEOUT):
        raise TimeoutError from ready.error
    ready.result()


def _cancel(master: Any, job_id: str, stop: BaseException, begun: Any = None) -> None:
    """Cancel a job whose submission was interrupted; add a note about the outcome to `stop`.

    Args:
        master: The actor that was given the job; it may not have started yet.
        begun: Reference to the answer to `take` of a warm actor that may not have answered yet; else `None`.
    """
    try:
        with suppress(ValueError), interrupts_delivered():  # the job may have ended already
            if begun is not None:
                ray.get(begun, timeout=_CANCEL_TIMEOUT)
            ray.get(master.cancel.remote(job_id), timeout=_CANCEL_TIMEOUT)
    except ray.exceptions.GetTimeoutError:
        ray.kill(master)
        stop.add_note(f"the process for job {job_id} did not answer, and was killed")
    except BaseException as error:  # the caller raises `stop`, whatever happens here
        name_job(stop, job_id, f"may run ({type(error).__name__} when it was cancelled)")
    else:
        stop.add_note(f"job {job_id} was cancelled during its submission")
