"""Processes of jobs on Ray: the names of their actors, and which process serves which job.

Ray's cluster-wide key-value store holds all keys. A process outlives jobs, so its name does not contain the
job that it serves.

**JobMasters.** Four kinds of keys:

- `master-of:<job>`: the process that is the job's JobMaster. Written before the job begins there, deleted
  when the job has ended and its report is kept.
- `job-of-master:<process>`: the last job that the process accepted, empty while it waits for a job. A process
  that Ray has restarted continues this job. Without the key it would run the job with which it was started.
  So the process never deletes the key. The program that started the process, or `penstock gc`, deletes the
  key after the process has ended.
- `warm-master:<process>`: a process that waits for a job. The program claims the process by deleting the key,
  and the process withdraws its offer in the same way. Only one deletion succeeds.
- `given:<job>`: a program gives the job to a process that has not accepted it yet. The process accepts it by
  deleting the key. A program that gets no answer takes the job back by deleting the key itself. Only one of
  the two succeeds, so a job never runs twice.

**Subtasks.** Two kinds of keys:

- `process-of:<job>:<process>`: a JobMaster has started or claimed this process. The key is written before the
  process learns its role, and deleted when the process has ended or has given its role back. So a restarted
  JobMaster finds and asks every process that may hold a role of its job. The value of the key is the number
  of calls that the process can hold.
- `warm:<program>:<calls>:<process>`: a process that waits for a role. A JobMaster claims the process by
  deleting the key, and the process withdraws its offer in the same way. Only one deletion succeeds.

A process never has both keys. So a JobMaster may end every process of its job: no other job has claimed it.

A program is a job in Ray's sense: one driver with one `sys.path`, in one runtime environment. Tasks of a
driver can have environments of their own, and the processes that they start inherit these. Programs share no
processes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

import msgpack
import ray
from ray.experimental import internal_kv
from ray.util import list_named_actors

#: The Ray namespace of every Penstock actor.
NAMESPACE: Final = "penstock"

_MASTER_PREFIX: Final = "master:"

_PROCESS_PREFIX: Final = "process:"


def master_name(process: str) -> str:
    return _MASTER_PREFIX + process


def process_name(process: str) -> str:
    return _PROCESS_PREFIX + process


def is_process_name(actor_name: str) -> bool:
    """Whether this is the name of a process that serves as JobMaster, or that runs subtasks."""
    return actor_name.startswith((_MASTER_PREFIX, _PROCESS_PREFIX))


#: Namespace of all keys in Ray's key-value store.
_KEYS: Final = b"penstock"

_MASTER_OF: Final = "master-of:"

_JOB_OF: Final = "job-of-master:"

_WARM: Final = "warm-master:"

_GIVEN: Final = "given:"


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A submitted job, as its JobMaster receives it.

    Attributes:
        chunks: The pickled job graph and settings (see `graph_shipping`).
        submission: Token of the submission; only processes that are given the job have it.
        ray_submission: Id of the program in Ray's Jobs API; empty for a program that was started otherwise.
        restore_from: URL of the snapshot to start from; overrides the one that the graph names, unless empty.
    """

    job_id: str
    name: str
    submitted_at: float
    chunks: tuple[bytes, ...]
    submission: str = ""
    ray_submission: str = ""
    restore_from: str = ""


def set_master(job_id: str, process: str) -> None:
    put(_MASTER_OF + job_id, process.encode())


def remove_master(job_id: str) -> None:
    delete(_MASTER_OF + job_id)


def is_master(job_id: str, process: str) -> bool:
    return get(_MASTER_OF + job_id) == process.encode()


def find_master(job_id: str) -> Any:
    """The handle of a job's JobMaster.

    Raises:
        ValueError: The job has no JobMaster, or Ray does not know its actor.
    """
    process = get(_MASTER_OF + job_id)
    if process is None:
        msg = f"job {job_id} has no JobMaster"
        raise ValueError(msg)
    return find_actor(master_name(process.decode()))


def has_master(job_id: str) -> bool:
    process = get(_MASTER_OF + job_id)
    return process is not None and is_living(master_name(process.decode()))


def jobs_with_master() -> set[str]:
    jobs = {key.removeprefix(_MASTER_OF): get(key) for key in keys(_MASTER_OF)}
    living = living_actors()
    return {job for job, process in jobs.items() if process and master_name(process.decode()) in living}


def keep_job(process: str, job: SubmittedJob | None) -> None:
    """Record the job that a process has accepted, in case Ray restarts it; `None` for no job."""
    put(_JOB_OF + process, b"" if job is None else msgpack.packb(astuple(job)))


def kept_job(process: str, first: SubmittedJob) -> SubmittedJob | None:
    """The job that a restarted process must continue, `None` for no job.

    `first` is the job with which the process was started. It is the answer if the process accepted no other
    job.
    """
    data = get(_JOB_OF + process)
    if data is None:
        return first
    job = _unpacked(data) if data else None
    return None if job is None or get(_GIVEN + job.job_id) is not None else job


def job_in(data: bytes) -> str | None:
    """The id of the job in a value of `keep_job`; `None` for no job."""
    return _unpacked(data).job_id if data else None


def give_job(job_id: str) -> None:
    put(_GIVEN + job_id, b"")


def accept_job(job_id: str) -> bool:
    """Accept a given job, or take it back; return `False` if the other side was faster."""
    return delete(_GIVEN + job_id)


def offer_master(process: str) -> None:
    put(_WARM + process, b"")


def claim_master(process: str) -> bool:
    """Claim a process, or withdraw its offer; return `False` if it is not offered, or already claimed."""
    return delete(_WARM + process)


def forget_process(process: str) -> None:
    delete(_JOB_OF + process)
    delete(_WARM + process)


def warm_masters() -> Sequence[str]:
    """The processes of JobMasters that wait for a job; some may have ended."""
    return sorted(key.removeprefix(_WARM) for key in keys(_WARM))


def _unpacked(data: bytes) -> SubmittedJob:
    return SubmittedJob(*msgpack.unpackb(data, use_list=False))


def start_actor(kind: type, name: str, *arguments: Any, **options: Any) -> Any:
    """Start a Penstock actor that processes find by its name; returns its handle at once."""
    actor: Any = ray.remote(kind)
    return actor.options(name=name, namespace=NAMESPACE, **options).remote(*arguments)


#: Maximum number of concurrent calls to a JobMaster: reports of subtasks, clients that wait, status.
_MASTER_CALLS: Final = 10_000


def start_master(kind: type, job: SubmittedJob) -> tuple[str, Any]:
    """Start a JobMaster (the class `kind`) for a job; returns its process and its handle at once."""
    process = secrets.token_hex(6)
    master = start_actor(
        kind,
        master_name(process),
        process,
        replace(job, chunks=()),
        *job.chunks,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=_MASTER_CALLS,
    )
    return process, master


def find_actor(name: str) -> Any:
    """The handle of a Penstock actor; raises `ValueError`, as Ray does, when it has ended."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except AssertionError as error:
        # Ray raises this when it has just removed the class, after the last actor of an ended program.
        msg = f"the actor '{name}' has ended"
        raise ValueError(msg) from error


def is_living(name: str) -> bool:
    # A handle would load the actor's class, and all that it imports, into this process.
    return name in living_actors()


def living_actors() -> set[str]:
    """The names of Penstock's actors, including actors that Ray is restarting."""
    actors: list[dict[str, str]] = list_named_actors(all_namespaces=True)
    return {actor["name"] for actor in actors if actor["namespace"] == NAMESPACE}


def keys(prefix: str) -> list[str]:
    return [key.decode() for key in internal_kv._internal_kv_list(prefix.encode(), namespace=_KEYS)]


def get(key: str) -> bytes | None:
    data: bytes | None = internal_kv._internal_kv_get(key.encode(), namespace=_KEYS)
    return data


def put(key: str, value: bytes, *, overwrite: bool = True) -> None:
    internal_kv._internal_kv_put(key.encode(), value, overwrite=overwrite, namespace=_KEYS)


def delete(key: str) -> bool:
    """Delete a key; return `False` if it does not exist, for example because another process was faster."""
    return bool(internal_kv._internal_kv_del(key.encode(), namespace=_KEYS))


def add_to_job(job_id: str, process: str, calls: int) -> None:
    """Record that a process of this job can hold `calls` concurrent calls."""
    put(_of_job(job_id, process), str(calls).encode())


def remove_from_job(job_id: str, process: str) -> None:
    delete(_of_job(job_id, process))


def processes_of_job(job_id: str) -> Sequence[str]:
    """The processes that a job has or had; some may have ended."""
    return _processes(_of_job(job_id, ""))


def offer(job_id: str, process: str) -> None:
    """Let other jobs of this program claim a process that has given its role back.

    Does nothing if the process no longer belongs to this job. A process that is not offered ends when its
    lease expires. This also happens if the caller dies after it has deleted the record.
    """
    record = _of_job(job_id, process)
    calls = get(record)
    if calls is not None and delete(record):
        put(_warm(process, int(calls)), b"")


def withdraw(process: str, calls: int) -> bool:
    """Withdraw an offer; return `False` if a JobMaster has claimed the process, or it was not offered."""
    return delete(_warm(process, calls))


def claim(job_id: str, calls: int) -> str | None:
    """Claim a warm process of this program for a job; `None` when none can hold `calls` calls."""
    for key in keys(_warm_prefix()):
        _, _, holds, process = key.split(":")
        if int(holds) >= calls and delete(key):
            add_to_job(job_id, process, int(holds))
            return process
    return None


def warm_processes() -> Sequence[str]:
    """The warm processes of this program; some may have ended."""
    return _processes(_warm_prefix())


def _of_job(job_id: str, process: str) -> str:
    return f"process-of:{job_id}:{process}"


def _warm_prefix() -> str:
    context = ray.get_runtime_context()
    environment: str = context.get_runtime_env_string()  # type: ignore[no-untyped-call]
    mark = hashlib.sha256(environment.encode()).hexdigest()[:12]
    return f"warm:{context.get_job_id()}-{mark}:"


def _warm(process: str, calls: int) -> str:
    return f"{_warm_prefix()}{calls}:{process}"


def _processes(prefix: str) -> Sequence[str]:
    return sorted(key.rpartition(":")[2] for key in keys(prefix))
