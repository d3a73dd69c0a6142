"""What remains of a job when its JobMaster has left: one small record per job, as JSON.

It is kept in Ray's cluster-wide key-value store, so that `penstock list` finds ended jobs without knowing
where their checkpoints are, and beside the checkpoints, so that it outlives the cluster.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from ray.experimental import internal_kv

from penstock.runtime.io.storage import open_storage, write_proof
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths

logger = logging.getLogger(__name__)

_NAMESPACE: Final = b"penstock"
_PREFIX: Final = b"job:"
_CANCELLED: Final = b"cancelled:"
#: Where the record stands in a checkpoint storage, below the job's folder.
_FILE: Final = "status.json"

JobRecord = Mapping[str, Any]


def save_to_cluster(job_id: str, record: JobRecord) -> None:
    """Keep the record in the cluster, over an earlier one."""
    internal_kv._internal_kv_put(
        _PREFIX + job_id.encode(), json.dumps(record).encode(), overwrite=True, namespace=_NAMESPACE
    )


def load_from_cluster(job_id: str) -> dict[str, Any] | None:
    """The record of a job; `None` when the cluster knows none."""
    data = internal_kv._internal_kv_get(_PREFIX + job_id.encode(), namespace=_NAMESPACE)
    return None if data is None else dict(json.loads(data))


def list_cluster() -> list[dict[str, Any]]:
    """The records of all jobs that this cluster has seen, oldest first."""
    keys = internal_kv._internal_kv_list(_PREFIX, namespace=_NAMESPACE)
    records = []
    for key in keys:
        data = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
        if data is not None:
            records.append(dict(json.loads(data)))
    return sorted(records, key=lambda r: float(r.get("submitted_at", 0)))


def remember_cancellation(job_id: str) -> None:
    """Note in the cluster, for good, that a job is to be cancelled; no later record of it takes that away."""
    internal_kv._internal_kv_put(_CANCELLED + job_id.encode(), b"", overwrite=True, namespace=_NAMESPACE)


def is_to_be_cancelled(job_id: str) -> bool:
    """Whether that was noted."""
    return internal_kv._internal_kv_get(_CANCELLED + job_id.encode(), namespace=_NAMESPACE) is not None


def save_to_storage(storage: SnapshotStorage, job_id: str, record: JobRecord) -> None:
    """Keep the record beside the job's checkpoints; blocks."""
    storage.put(f"{job_id}/{_FILE}", json.dumps(record, indent=2).encode())


def keep_beside_checkpoints(storage: SnapshotStorage, job_id: str, record: JobRecord) -> None:
    """As `save_to_storage`; a record that can't be kept there is logged, for it is in the cluster as well."""
    try:
        save_to_storage(storage, job_id, record)
    except Exception:  # whatever it is, the end of the job must not hang on it
        logger.exception("the record of job %s could not be kept beside its checkpoints", job_id)


def open_proven(url: str, job_id: str) -> SnapshotStorage:
    """Open the storage of a job, and leave the proof there by which its nodes see that it is the same.

    Raises:
        StorageError: It can't be opened or written.
    """
    storage = open_storage(url)
    write_proof(storage, SnapshotPaths(job_id).same_storage, job_id)
    return storage


def load_from_storage(storage: SnapshotStorage, job_id: str) -> dict[str, Any]:
    """The record beside a job's checkpoints; blocks.

    Raises:
        ObjectNotFoundError: There is none.
    """
    return dict(json.loads(storage.get(f"{job_id}/{_FILE}")))
