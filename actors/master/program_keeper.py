"""`ProgramKeeper`: an actor that keeps the program of a job, and can start the job's graph again.

An upgrade ends the old job before it knows whether the new program works. By then the files of the old
program may have changed, and its JobMaster ends with the job. So the JobMaster first starts this actor. Ray
keeps the pickled graph and settings in the specification of the actor, as it does for a JobMaster. The actor
inherits the runtime environment and the module path of the old program, and so does each JobMaster that it
starts. It is detached, so it outlives the command that upgrades. Ray restarts it if it dies. The command ends
it. If the command is killed and not repeated, `penstock gc` ends it, with the records of its job.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Any, Final

import ray

from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.registry import (
    SubmittedJob,
    find_actor,
    has_master,
    is_living,
    start_actor,
    start_master,
)

_PREFIX: Final = "program-of:"


def keeper_name(job_id: str) -> str:
    """The name of the actor that keeps a job's program."""
    return _PREFIX + job_id


class ProgramKeeper:
    """Keeps one program.

    Args:
        master: The class of JobMasters.
        job: The job of the program, without its chunks, which follow as separate arguments.
    """

    def __init__(self, master: type, job: SubmittedJob, *chunks: bytes) -> None:
        self._master = master
        self._job = replace(job, chunks=chunks)
        self._started: set[str] = set()

    def ready(self) -> None:
        """Return once the actor has the program."""

    def start(self, job_id: str, snapshot: str) -> None:
        """Start the program's graph as a job with this id, from a snapshot, unless the job exists."""
        if job_id in self._started or has_master(job_id) or load_from_cluster(job_id) is not None:
            return
        job = replace(
            self._job,
            job_id=job_id,
            submitted_at=time.time(),
            submission=secrets.token_hex(8),
            ray_submission="",
            restore_from=snapshot,
        )
        start_master(self._master, job)
        self._started.add(job_id)


def keep(master: type, job: SubmittedJob) -> Any:
    """Start the keeper of a job's program, or find it; returns its handle at once."""
    return start_actor(
        ProgramKeeper,
        keeper_name(job.job_id),
        master,
        replace(job, chunks=()),
        *job.chunks,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=-1,
        get_if_exists=True,
    )


def find_keeper(job_id: str) -> Any | None:
    """The keeper of a job's program; `None` if there is none."""
    name = keeper_name(job_id)
    return find_actor(name) if is_living(name) else None


def forget(job_id: str) -> None:
    """End the keeper of a job's program, if there is one."""
    keeper = find_keeper(job_id)
    if keeper is not None:
        ray.kill(keeper)
