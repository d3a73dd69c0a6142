"""Jobs that have ended, read from what they left in their checkpoint storage; no cluster is needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.actors.shared.archive import load_from_storage
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import ObjectNotFoundError
from penstock.runtime.io.storage import ObjectStorage, absolute_location, list_folders, open_location

#: Reports that are read at the same time.
_READERS: Final = 16


def archived_jobs(storage: str | Path) -> list[JobReport]:
    """The last reports of all jobs that have ended and left one in this storage, oldest job first.

    Args:
        storage: The `storage` of the jobs' `Checkpointing`: a path or URL.

    Raises:
        StorageError: It can't be read.
    """
    url = absolute_location(storage)
    opened, folders = open_location(url), list_folders(url)
    with ThreadPoolExecutor(_READERS) as pool:
        found = pool.map(lambda folder: _report_in(opened, folder), folders)
        reports = [report for report in found if report is not None]
    return sorted(reports, key=lambda report: report.submitted_at)


def archived_job(storage: str | Path, job_id: str) -> JobReport | None:
    """The last report of one job; `None` when it has left none in this storage.

    Raises:
        StorageError: It can't be read.
    """
    return _report_in(open_location(absolute_location(storage)), job_id)


def _report_in(storage: ObjectStorage, job_id: str) -> JobReport | None:
    try:
        return load_from_storage(storage, job_id)
    except ObjectNotFoundError:
        return None
