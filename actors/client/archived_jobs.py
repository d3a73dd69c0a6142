"""Jobs that have ended, read from what they left in their checkpoint storage; no cluster is needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.actors.shared.archive import UnreadableReport, load_from_storage
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import ConfigurationError, ObjectNotFoundError, StorageError
from penstock.runtime.io.storage import ObjectStorage, absolute_location, list_folders, open_location
from penstock.runtime.snapshot.paths import check_job_id

#: Reports that are read at the same time.
_READERS: Final = 16
#: Bytes of a report; what is larger is none.
_LARGEST: Final = 64 * 1024 * 1024


def archived_jobs(storage: str | Path) -> tuple[list[JobReport], list[UnreadableReport]]:
    """The last reports of all jobs that have ended and left one in this storage, oldest job first.

    One that can't be read hides no other one: it comes with its reason. Folders whose names can't be ids of
    jobs are left aside.

    Args:
        storage: The `storage` of the jobs' `Checkpointing`: a path or URL.

    Raises:
        StorageError: The storage itself can't be read.
    """
    url = absolute_location(storage)
    opened, folders = open_location(url, most=_LARGEST), list_folders(url)
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(lambda folder: _found_in(opened, folder), filter(_is_job_id, folders)))
    reports = [each for each in found if isinstance(each, JobReport)]
    unreadable = [each for each in found if isinstance(each, UnreadableReport)]
    return sorted(reports, key=lambda report: report.submitted_at), unreadable


def archived_job(storage: str | Path, job_id: str) -> JobReport | None:
    """The last report of one job; `None` when it has left none in this storage.

    Raises:
        StorageError: It can't be read.
    """
    return _report_in(open_location(absolute_location(storage), most=_LARGEST), job_id)


def _found_in(storage: ObjectStorage, job_id: str) -> JobReport | UnreadableReport | None:
    try:
        return _report_in(storage, job_id)
    except StorageError as error:
        return UnreadableReport(job_id, str(error))


def _is_job_id(folder: str) -> bool:
    try:
        return bool(check_job_id(folder))
    except ConfigurationError:
        return False


def _report_in(storage: ObjectStorage, job_id: str) -> JobReport | None:
    try:
        return load_from_storage(storage, job_id)
    except ObjectNotFoundError:
        return None
