"""Which processes a job has, and which warm ones a program has, in Ray's cluster-wide key-value store.

A process outlives jobs, so its name does not tell whom it serves. Two kinds of keys do:

- `process-of:<job>:<process>`: a JobMaster has started or claimed this process. The key is written before the
  process is told of its role, and deleted when the process has ended or has given its role back. So a
  JobMaster that comes back finds every process that may hold a role of its job, and asks it.
- `warm:<program>:<calls>:<process>`: a process without a role that waits for one. Only one JobMaster can
  delete the key, and the one that does has the process.

A program is what Ray calls a job: one driver, with one runtime environment and one `sys.path`. Nothing is
shared between programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import ray
from ray.experimental import internal_kv

_NAMESPACE: Final = b"penstock"


def add_to_job(job_id: str, process: str) -> None:
    """Note that a process is of this job."""
    internal_kv._internal_kv_put(_of_job(job_id, process), b"", overwrite=True, namespace=_NAMESPACE)


def remove_from_job(job_id: str, process: str) -> None:
    """Note that a process is not of this job any more."""
    internal_kv._internal_kv_del(_of_job(job_id, process), namespace=_NAMESPACE)


def processes_of_job(job_id: str) -> Sequence[str]:
    """The processes that a job has or had; some may have ended."""
    return _processes(_of_job(job_id, ""))


def offer(process: str, calls: int) -> None:
    """Offer a process without a role to the JobMasters of its program; to be called in the process.

    Args:
        calls: Calls that it can hold at the same time.
    """
    internal_kv._internal_kv_put(_warm(process, calls), b"", overwrite=True, namespace=_NAMESPACE)


def withdraw(process: str, calls: int) -> bool:
    """Take an offer back; `False` when a JobMaster has claimed the process."""
    return _delete(_warm(process, calls))


def claim(calls: int) -> str | None:
    """Claim a warm process of this program that can hold this many calls; `None` when there is none."""
    for key in internal_kv._internal_kv_list(_warm_prefix(), namespace=_NAMESPACE):
        _, _, holds, process = key.decode().split(":")
        if int(holds) >= calls and _delete(key):
            return process
    return None


def warm_processes() -> Sequence[str]:
    """The warm processes of this program; some may have ended."""
    return _processes(_warm_prefix())


def _of_job(job_id: str, process: str) -> bytes:
    return f"process-of:{job_id}:{process}".encode()


def _warm_prefix() -> bytes:
    return f"warm:{ray.get_runtime_context().get_job_id()}:".encode()


def _warm(process: str, calls: int) -> bytes:
    return _warm_prefix() + f"{calls}:{process}".encode()


def _processes(prefix: bytes) -> Sequence[str]:
    keys = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
    return sorted(key.decode().rpartition(":")[2] for key in keys)


def _delete(key: bytes) -> bool:
    return bool(internal_kv._internal_kv_del(key, namespace=_NAMESPACE))
