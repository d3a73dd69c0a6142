"""The archive of ended jobs: the last report of each, as JSON.

Each report is stored in two places. `penstock list` finds it in Ray's cluster-wide key-value store, which
ends with the cluster. The file `<job>/status.json` beside the job's checkpoints outlives the cluster.

The types of a report from JSON are checked, because `from_dict` accepts values of other types.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from sys import float_info
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from ray.experimental import internal_kv

from penstock.actors.shared.job_report import FORMAT, JobReport
from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.slots import Fenced
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import CorruptSnapshotError, JobIdTakenError
from penstock.runtime.io.storage import STORAGE_TIMEOUT, open_storage, write_proof
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths


def check_types(value: object, kind: Any, where: str = "") -> None:
    """Raise a `TypeError` that names the first value that is not of its declared type.

    An `int` is a valid `float`; infinities and NaN are not.
    """
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, kind):
            raise _wrong(value, kind, where)
        for name, declared in _declared(kind):
            check_types(getattr(value, name), declared, f"{where}.{name}" if where else name)
        return
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        _check_union(value, arguments, kind, where)
    elif origin is tuple:
        if not isinstance(value, tuple):
            raise _wrong(value, kind, where)
        is_open = arguments[-1:] == (...,)
        if not is_open and len(value) != len(arguments):
            raise _wrong(value, kind, where)
        for index, item in enumerate(value):
            check_types(item, arguments[0 if is_open else index], f"{where}[{index}]")
    elif origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            raise _wrong(value, kind, where)
        for key, item in value.items():
            check_types(key, arguments[0], f"a key of {where}")
            check_types(item, arguments[1], f"{where}[{key!r}]")
    elif origin in (Sequence, list):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise _wrong(value, kind, where)
        for index, item in enumerate(value):
            check_types(item, arguments[0], f"{where}[{index}]")
    elif kind is not Any and not _is_plain(value, kind):
        raise _wrong(value, kind, where)


@cache
def _declared(kind: type) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _check_union(value: object, kinds: Sequence[Any], kind: Any, where: str) -> None:
    if value is None and type(None) in kinds:
        return
    of_class = [
        choice
        for choice in kinds
        if isinstance(choice, type) and is_dataclass(choice) and isinstance(value, choice)
    ]
    others = [choice for choice in kinds if choice is not type(None)]
    if of_class or len(others) == 1:
        check_types(value, (of_class or others)[0], where)
    elif not any(_is_plain(value, choice) for choice in others):
        raise _wrong(value, kind, where)


def _is_plain(value: object, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return isinstance(value, kind)
    return isinstance(value, kind) if isinstance(kind, type) else True


def _wrong(value: object, kind: Any, where: str) -> TypeError:
    return TypeError(f"{where or 'it'} is {value!r:.60} and no {getattr(kind, '__name__', kind)}")


logger = logging.getLogger(__name__)

_NAMESPACE: Final = b"penstock"

_PREFIX: Final = b"job:"

_CANCELLED: Final = b"cancelled:"
#: Path of the report in a checkpoint storage, below the job's folder.
_FILE: Final = "status.json"


def report_from(data: dict[str, Any]) -> JobReport:
    """Build a report from its plain values; may raise any exception if they are invalid."""
    if data["format"] != FORMAT:
        msg = f"it has format {data['format']!r:.20}; this version of Penstock reads {FORMAT}"
        raise ValueError(msg)
    report = JobReport.from_dict(data)
    check_types(report, JobReport)
    return report


@dataclass(frozen=True, slots=True)
class UnreadableReport:
    """An entry for a report that can't be read; the other reports are still listed."""

    job_id: str
    reason: str


def save_to_cluster(report: JobReport) -> None:
    internal_kv._internal_kv_put(
        _PREFIX + report.job_id.encode(),
        json.dumps(_to_keep(report)).encode(),
        overwrite=True,
        namespace=_NAMESPACE,
    )


def load_from_cluster(job_id: str) -> JobReport | None:
    """The last report of a job; `None` when the cluster has none."""
    data = internal_kv._internal_kv_get(_PREFIX + job_id.encode(), namespace=_NAMESPACE)
    return None if data is None else report_from(json.loads(data))


def list_cluster() -> tuple[list[JobReport], list[UnreadableReport]]:
    """The last report of every job that this cluster has run, oldest first, and the unreadable ones."""
    reports: list[JobReport] = []
    unreadable: list[UnreadableReport] = []
    for key in internal_kv._internal_kv_list(_PREFIX, namespace=_NAMESPACE):
        data = internal_kv._internal_kv_get(key, namespace=_NAMESPACE)
        job_id = key.removeprefix(_PREFIX).decode("utf-8", "replace")
        try:
            if data is not None:
                reports.append(_decoded(data, job_id, f"the cluster's report of job {job_id}"))
        except CorruptSnapshotError as error:
            unreadable.append(UnreadableReport(job_id, str(error)))
    return sorted(reports, key=lambda report: report.submitted_at), unreadable


def remember_cancellation(job_id: str) -> None:
    """Record permanently in the cluster that a job is to be cancelled; later reports do not erase this."""
    internal_kv._internal_kv_put(_CANCELLED + job_id.encode(), b"", overwrite=True, namespace=_NAMESPACE)


def is_to_be_cancelled(job_id: str) -> bool:
    return internal_kv._internal_kv_get(_CANCELLED + job_id.encode(), namespace=_NAMESPACE) is not None


def save_to_storage(storage: SnapshotStorage, report: JobReport) -> None:
    storage.put(f"{report.job_id}/{_FILE}", json.dumps(_to_keep(report), indent=2).encode())


def keep_beside_checkpoints(storage: SnapshotStorage, report: JobReport) -> None:
    """Keep the report beside the job's checkpoints. A failure is only logged: the cluster has the report."""
    try:
        save_to_storage(storage, report)
    except Exception:  # no error here may affect the job's end
        logger.exception("the report of job %s could not be kept beside its checkpoints", report.job_id)


def load_from_storage(storage: SnapshotStorage, job_id: str) -> JobReport:
    """The report beside a job's checkpoints; blocks.

    Raises:
        ObjectNotFoundError: The job has no report there.
        CorruptSnapshotError: The file is no report.
    """
    path = f"{job_id}/{_FILE}"
    return _decoded(storage.get(path), job_id, f"{storage.url}/{path}")


def _decoded(data: bytes, job_id: str, where: str) -> JobReport:
    try:
        report = report_from(json.loads(data))
    except Exception as error:  # invalid bytes must not hide other jobs' reports
        msg = f"{where} is no report of a job ({error_text(error, 300)})"
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
            f"job id {job_id!r} is taken: {url}/{found[0]} is of an earlier job. Nothing was changed there; "
            "submit the job again"
        )
        raise JobIdTakenError(msg)
    write_proof(storage, paths.same_storage, job_id)
    return storage


def _replaced_in(storage: SnapshotStorage, paths: SnapshotPaths, submission: str) -> Fenced | None:
    """`Fenced` if the log in the storage is of this submission."""
    try:
        view = DecisionLogReader(storage, paths).replay()
    except CorruptSnapshotError:  # the owner is unknown
        return None
    return Fenced(view.last_attempt) if view.is_of(submission) else None


def _to_keep(report: JobReport) -> dict[str, Any]:
    """Return plain values; those of an ended job name no process, because it can't be reached."""
    if report.status.is_terminal:
        subtasks = tuple(replace(subtask, process=None) for subtask in report.subtasks)
        report = replace(report, master=None, subtasks=subtasks)
    return report.to_dict()
