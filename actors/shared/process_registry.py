"""Which processes a job has, and which warm ones a program has, in Ray's cluster-wide key-value store.

A process outlives jobs, so its name does not tell whom it serves. Two kinds of keys do:

- `process-of:<job>:<process>`: a JobMaster has started or claimed this process. The key is written before the
  process is told of its role, and deleted when the process has ended or has given its role back. So a
  JobMaster that comes back finds every process that may hold a role of its job, and asks it. Its value is the
  number of calls that the process can hold.
- `warm:<program>:<calls>:<process>`: a process without a role that waits for one. Only one JobMaster can
  delete the key, and the one that does has the process.

A process never has both keys. So a JobMaster may end every process of its job: no other job has claimed it.

A program is what Ray calls a job, one driver with one `sys.path`, in one runtime environment. Tasks of a
driver can have environments of their own, and what they start inherits them. Nothing is shared between
programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import ray
from ray.experimental import internal_kv

_NAMESPACE: Final = b"penstock"


def add_to_job(job_id: str, process: str, calls: int) -> None:
    """Note that a process, which can hold so many calls at the same time, is of this job."""
    internal_kv._internal_kv_put(
        _of_job(job_id, process), str(calls).encode(), overwrite=True, namespace=_NAMESPACE
    )


def remove_from_job(job_id: str, process: str) -> None:
    """Note that a process is not of this job any more."""
    internal_kv._internal_kv_del(_of_job(job_id, process), namespace=_NAMESPACE)


def processes_of_job(job_id: str) -> Sequence[str]:
    """The processes that a job has or had; some may have ended."""
    return _processes(_of_job(job_id, ""))


def offer(job_id: str, process: str) -> None:
    """Let other jobs of this program claim a process that has given its role back.

    Nothing happens when it is not of this job any more. The process ends by its lease then, and also when the
    caller dies between the two steps.
    """
    record = _of_job(job_id, process)
    calls = internal_kv._internal_kv_get(record, namespace=_NAMESPACE)
    if calls is not None and _delete(record):
        internal_kv._internal_kv_put(_warm(process, int(calls)), b"", overwrite=True, namespace=_NAMESPACE)


def withdraw(process: str, calls: int) -> bool:
    """Take an offer back; `False` when a JobMaster has claimed the process, or nobody has offered it."""
    return _delete(_warm(process, calls))


def claim(job_id: str, calls: int) -> str | None:
    """Claim a warm process of this program for a job; `None` when none can hold so many calls."""
    for key in internal_kv._internal_kv_list(_warm_prefix(), namespace=_NAMESPACE):
        _, _, holds, process = key.decode().split(":")
        if int(holds) >= calls and _delete(key):
            add_to_job(job_id, process, int(holds))
            return process
    return None


def warm_processes() -> Sequence[str]:
    """The warm processes of this program; some may have ended."""
    return _processes(_warm_prefix())


def _of_job(job_id: str, process: str) -> bytes:
    return f"process-of:{job_id}:{process}".encode()


def _warm_prefix() -> bytes:
    context = ray.get_runtime_context()
    environment: str = context.get_runtime_env_string()  # type: ignore[no-untyped-call]
    mark = hashlib.sha256(environment.encode()).hexdigest()[:12]
    return f"warm:{context.get_job_id()}-{mark}:".encode()


def _warm(process: str, calls: int) -> bytes:
    return _warm_prefix() + f"{calls}:{process}".encode()


def _processes(prefix: bytes) -> Sequence[str]:
    keys = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
    return sorted(key.decode().rpartition(":")[2] for key in keys)


def _delete(key: bytes) -> bool:
    return bool(internal_kv._internal_kv_del(key, namespace=_NAMESPACE))
