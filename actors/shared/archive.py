"""The last report of each job, as JSON.

`penstock list` finds it in Ray's cluster-wide key-value store, which ends with the cluster. The last report
of an ended job is also in the file `<job>/status.json` next to the job's checkpoints, which outlives the
cluster. A job without checkpoints has no such file.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any, Final

from penstock.actors.shared import registry
from penstock.actors.shared.job_report import FORMAT, JobReport
from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError, JobIdTakenError
from penstock.runtime.io.storage import STORAGE_TIMEOUT, open_storage, write_proof
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths

logger = logging.getLogger(__name__)

_PREFIX: Final = "job:"

_CANCELLED: Final = "cancelled:"
#: Key of a program whose jobs must not run, followed by its id in Ray.
_ENDED_PROGRAM: Final = "ended-program:"
#: Path of the report in a checkpoint storage, below the job's folder.
_FILE: Final = "status.json"


def report_from(data: dict[str, Any]) -> JobReport:
    """Build a report from its plain values; may raise any exception if they are invalid."""
    if data["format"] != FORMAT:
        msg = f"it has format {data['format']!r:.20}; this version of Penstock reads {FORMAT}"
        raise ValueError(msg)
    return JobReport.from_dict(data)


def save_to_cluster(report: JobReport) -> None:
    registry.put(_PREFIX + report.job_id, json.dumps(_to_keep(report)).encode())


def load_from_cluster(job_id: str) -> JobReport | None:
    """The last report of a job; `None` if the cluster has no report.

    Raises:
        CorruptSnapshotError: The report can't be read: another version may have written it.
    """
    data = registry.get(_PREFIX + job_id)
    return None if data is None else _decoded(data, job_id, f"the cluster's report of job {job_id}")


def list_cluster() -> dict[str, JobReport | CorruptSnapshotError]:
    """The last report of every job that this cluster knows, or the reason why it can't be read."""
    found: dict[str, JobReport | CorruptSnapshotError] = {}
    for key in registry.keys(_PREFIX):
        job_id = key.removeprefix(_PREFIX)
        try:
            report = load_from_cluster(job_id)
        except CorruptSnapshotError as error:
            found[job_id] = error
        else:
            if report is not None:  # else it was deleted meanwhile
                found[job_id] = report
    return found


def remember_cancellation(job_id: str) -> None:
    """Record the cancellation of a job in the cluster; later reports do not erase the record."""
    registry.put(_CANCELLED + job_id, b"")


def is_to_be_cancelled(job_id: str) -> bool:
    return registry.get(_CANCELLED + job_id) is not None


def forbid_jobs_of(ray_submission: str) -> None:
    """Let no job of a program begin from now on. A job that runs is cancelled if its JobMaster restarts.

    A JobMaster is registered before it reads this record. So every job that may run in spite of the record
    has a JobMaster that is listed after this call.
    """
    registry.put(_ENDED_PROGRAM + ray_submission, b"")


def may_have_jobs(ray_submission: str) -> bool:
    """Whether jobs of this program may run; an empty id stands for a program that Ray does not know."""
    return not ray_submission or registry.get(_ENDED_PROGRAM + ray_submission) is None


def save_to_storage(storage: SnapshotStorage, report: JobReport) -> None:
    storage.put(f"{report.job_id}/{_FILE}", json.dumps(_to_keep(report), indent=2).encode())


def keep_beside_checkpoints(storage: SnapshotStorage, report: JobReport) -> None:
    """Write the report next to the checkpoints. A failure is only logged: the cluster has the report."""
    try:
        save_to_storage(storage, report)
    except Exception:  # no error here may affect the job's end
        logger.exception("the report of job %s could not be kept next to its checkpoints", report.job_id)


def load_from_storage(storage: SnapshotStorage, job_id: str) -> JobReport:
    """The report next to a job's checkpoints; blocks.

    Raises:
        ObjectNotFoundError: The job has no report there.
        CorruptSnapshotError: The file is not a report of this job.
    """
    path = f"{job_id}/{_FILE}"
    return _decoded(storage.get(path), job_id, f"{storage.url}/{path}")


def _decoded(data: bytes, job_id: str, where: str) -> JobReport:
    try:
        report = report_from(json.loads(data))
    except Exception as error:  # invalid bytes must not hide other jobs' reports
        msg = f"{where} is not a report of a job ({error_text(error, 300)})"
        raise CorruptSnapshotError(msg) from error
    if report.job_id != job_id:
        msg = f"{where} is the report of another job, {report.job_id!r:.80}"
        raise CorruptSnapshotError(msg)
    return report


def open_proven(
    url: str, job_id: str, *, is_new: bool = False, submission: str = "", timeout: float = STORAGE_TIMEOUT
) -> SnapshotStorage | Fenced:
    """Open the storage of a job, and write the proof by which its nodes recognize the same storage.

    Returns `Fenced`, and writes nothing, if the job is new and another process has become its JobMaster.

    Args:
        is_new: Whether the job was just submitted. A log of another submission under its id then belongs
            to another job.
        timeout: Seconds without progress after which a call fails.

    Raises:
        JobIdTakenError: The job is new, and the storage has another job's log under its id; nothing was
            written.
    """
    storage = open_storage(url, timeout=timeout)
    paths = SnapshotPaths(job_id)
    if is_new and (found := storage.list(paths.log)):
        if (fenced := _replaced_in(storage, paths, submission)) is not None:
            return fenced
        msg = (
            f"job id {job_id!r} is taken: {url}/{found[0]} belongs to an earlier job. Nothing was changed "
            "there; submit the job again"
        )
        raise JobIdTakenError(msg)
    write_proof(storage, paths.same_storage, job_id)
    return storage


def _replaced_in(storage: SnapshotStorage, paths: SnapshotPaths, submission: str) -> Fenced | None:
    """Return `Fenced` if the log in the storage belongs to this submission."""
    try:
        view = DecisionLogReader(storage, paths).replay()
    except CorruptSnapshotError:  # the owner is unknown
        return None
    return Fenced(view.last_attempt) if view.is_of(submission) else None


def _to_keep(report: JobReport) -> dict[str, Any]:
    """Return plain values, without processes for an ended job."""
    if report.status.is_terminal:
        subtasks = tuple(replace(subtask, process=None) for subtask in report.subtasks)
        report = replace(report, master=None, subtasks=subtasks)
    return report.to_dict()
