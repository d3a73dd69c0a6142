"""Finding jobs again from any process of the cluster.

Running jobs are found by their JobMasters, and ended jobs by their last reports. The cluster's key-value
store keeps a report until `penstock gc` deletes it or the cluster ends. The job's checkpoint storage keeps it
longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final

import ray

from penstock.actors.client.cluster import join_existing
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.archive import list_cluster, load_from_cluster, load_from_storage
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.registry import find_master, has_master, jobs_with_master
from penstock.runtime.config.checks import Location, location
from penstock.runtime.errors import (
    ConfigurationError,
    CorruptSnapshotError,
    DeploymentError,
    ObjectNotFoundError,
    StorageError,
)
from penstock.runtime.graph.executor import JobStatistics, JobStatus
from penstock.runtime.io.storage import ObjectStorage, absolute_location, list_folders, open_location
from penstock.runtime.names import checked_keywords, nearest_name, normal_name
from penstock.runtime.snapshot.paths import check_job_id

#: Maximum number of reports that are read concurrently.
_READERS: Final = 16
#: Maximum bytes of a report; a larger file is not a report.
_LARGEST: Final = 64 * 1024 * 1024


def archived_jobs(storage: Location) -> list[KnownJob]:
    """All ended jobs with a report in a checkpoint storage: unreadable reports first, then the oldest.

    Folders whose names can't be job ids are skipped.
    """
    url = absolute_location("storage", storage)
    opened, folders = open_location(url, max_bytes=_LARGEST), list_folders(url)
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(partial(_archived, opened), filter(_is_job_id, folders)))
    return sorted((job for job in found if job is not None), key=_submitted_at)


def archived_job(storage: Location, job_id: str) -> KnownJob | None:
    """An ended job; `None` when this storage has no report of it."""
    return _archived(open_location(absolute_location("storage", storage), max_bytes=_LARGEST), job_id)


def _archived(storage: ObjectStorage, job_id: str) -> KnownJob | None:
    try:
        report = load_from_storage(storage, job_id)
    except ObjectNotFoundError:
        return None
    except StorageError as error:
        return KnownJob.unreadable(job_id, str(error))
    return KnownJob(report, has_master=False, is_archived=True)


def _submitted_at(job: KnownJob) -> float:
    return job.report.submitted_at


def _is_job_id(folder: str) -> bool:
    try:
        return bool(check_job_id(folder))
    except ConfigurationError:
        return False


_ANSWER_TIMEOUT: Final = 5.0
#: Minimum number of leading digits of a job id's number that can name the job.
_FEWEST: Final = 4
#: Minimum number of these digits that tables show.
_SHOWN: Final = 8
#: Maximum number of jobs, the newest ones, that the error about an unknown job lists.
_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that the cluster or a storage knows.

    Attributes:
        report: Newest report of the job.
        has_master: Whether it has a JobMaster, which runs or is being restarted.
        is_archived: Whether the report was read from a storage, not from the cluster.
        problem: Reason why the report can't be read; empty if it can. An unreadable `report` has only the
            job's id.
    """

    report: JobReport
    has_master: bool
    is_archived: bool = False
    problem: str = ""

    @classmethod
    def unreadable(cls, job_id: str, problem: str, *, has_master: bool = False) -> KnownJob:
        """Make a job without a readable report; only its id is known."""
        status = JobStatus.CREATED
        report = JobReport(job_id, job_id, status, 0.0, 0.0, JobStatistics(status))
        return cls(report, has_master, problem=problem)

    @property
    def is_running(self) -> bool:
        """Whether the job has a JobMaster and, by its readable report, has not ended."""
        return self.has_master and not self.report.status.is_terminal and not self.problem

    @property
    def is_lost(self) -> bool:
        """Whether the job has not ended, but its JobMaster was killed for good."""
        return not self.has_master and not self.report.status.is_terminal and not self.problem

    @property
    def state(self) -> str:
        """The job's state as one word."""
        if self.problem:
            return "unreadable"
        return "lost" if self.is_lost else self.report.status.value

    def handle(self) -> RayJobHandle:
        """The job's handle; the handle of an archived job needs no cluster.

        Raises:
            StorageError: The report can't be read, and the job has no JobMaster.
        """
        if self.problem and not self.has_master:
            raise StorageError(self.problem)
        ended = self.report if self.is_archived else None
        return RayJobHandle(self.report.job_id, self.report.name, ended=ended)


@checked_keywords
def job(job: str, *, storage: Location | None = None) -> RayJobHandle:
    """The handle of a job, running or ended.

    Args:
        job: Id, prefix of an id, or name. If it matches several jobs, exactly one of them must be running;
            this job is chosen.
        storage: Checkpoint storage of a job that has ended and that this cluster may not know. If it is
            given, no cluster has to run.

    Raises:
        ConfigurationError: No job matches, or several do.
        DeploymentError: No Ray cluster can be joined, and no `storage` was given.
        StorageError: The storage, or the report of a job without a JobMaster, can't be read.
    """
    join(storage)
    return find_job(job, storage)


@checked_keywords
def jobs(*, storage: Location | None = None) -> list[KnownJob]:
    """All jobs that the cluster knows, and ended jobs with a report in `storage`, oldest first.

    Args:
        storage: A checkpoint storage whose ended jobs are listed too. If it is given, no cluster has to run.

    Raises:
        DeploymentError: No Ray cluster can be joined, and no `storage` was given.
        StorageError: The storage can't be read.
    """
    join(storage)
    return known_jobs(storage)


def join(storage: Location | None, address: str | None = None) -> DeploymentError | None:
    """Join the cluster of `address`; without a cluster, return the error if only a storage was given."""
    if storage is not None:
        location("storage", storage)
    try:
        join_existing(address)
    except DeploymentError as error:
        if storage is None or address is not None:
            raise
        return error
    return None


def find_job(text: str, storage: Location | None = None) -> RayJobHandle:
    """Like `job`, in the cluster that has been joined, if any."""
    known = _by_id(text, storage)
    if known is None:
        known = choose(text, known_jobs(storage), storage)
    return known.handle()


def known_jobs(storage: Location | None = None) -> list[KnownJob]:
    """All jobs that the joined cluster knows, and ended jobs with a report in `storage`, oldest first."""
    return with_archived(cluster_jobs(), [] if storage is None else archived_jobs(storage))


def cluster_jobs() -> list[KnownJob]:
    """All jobs that the joined cluster knows; empty without a joined cluster."""
    return _known_to_cluster() if ray.is_initialized() else []


def with_archived(known: Iterable[KnownJob], archived: Iterable[KnownJob]) -> list[KnownJob]:
    """Merge the jobs of a cluster and of a storage, oldest first; unreadable reports come first.

    A readable stored report replaces the cluster's report of a lost job. It also replaces an unreadable
    report of a job without a JobMaster.
    """
    found = {job.report.job_id: job for job in known}
    for job in archived:
        there = found.setdefault(job.report.job_id, job)
        if not job.problem and (there.is_lost or (there.problem and not there.has_master)):
            found[job.report.job_id] = job
    return sorted(found.values(), key=_submitted_at)


def choose(text: str, known: Iterable[KnownJob], storage: Location | None = None) -> KnownJob:
    """Find a job by its id, a prefix of the id, the first digits of the id's number, or its name.

    Raises:
        ConfigurationError: No job matches, or several do; the message lists the known or the matching jobs.
    """
    known, text = list(known), normal_name(text)
    matching = [job for job in known if text in (job.report.job_id, job.report.name)]
    matching = matching or [job for job in known if is_short_for(text, job.report.job_id)]
    if len(matching) > 1:
        matching = [job for job in matching if job.is_running] or matching
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise ConfigurationError(_unknown(text, known, storage))
    short = short_ids(job.report.job_id for job in known)
    ids = ", ".join(f"{short[job.report.job_id]} ({job.state})" for job in matching)
    msg = f"'{text}' may be any of {len(matching)} jobs: {ids}; give one id"
    raise ConfigurationError(msg)


def is_short_for(text: str, job_id: str) -> bool:
    """Whether a text is a prefix of a job id, or at least the first 4 digits of the number at its end.

    Example:
        >>> [is_short_for(text, "count-9f04ab12cd") for text in ("count-9f", "9f04", "9f0", "ab12")]
        [True, True, False, False]
    """
    digits = job_id.rpartition("-")[2]
    return bool(text) and (job_id.startswith(text) or (len(text) >= _FEWEST and digits.startswith(text)))


def short_ids(job_ids: Iterable[str]) -> dict[str, str]:
    """The shortest distinct prefixes of job ids, with at least 8 digits of the number at the end."""
    known = sorted(set(job_ids))
    short: dict[str, str] = {}
    for index, job_id in enumerate(known):
        beside = [*known[max(0, index - 1) : index], *known[index + 1 : index + 2]]
        shared = max((_shared(job_id, other) for other in beside), default=0)
        short[job_id] = job_id[: max(job_id.rfind("-") + 1 + _SHOWN, shared + 1)]
    return short


def _shared(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _unknown(text: str, known: list[KnownJob], storage: Location | None) -> str:
    short = short_ids(job.report.job_id for job in known)
    ids = [short[job.report.job_id] for job in known]
    near = nearest_name(text, [*ids, *(job.report.name for job in known)])
    named = ", ".join(ids[-_NAMED:]) or "none"
    more = f" and {len(ids) - _NAMED} older" if len(ids) > _NAMED else ""
    msg = f"{_unknown_to(storage)} job '{text}'; known jobs: {named}{more}{near}"
    if storage is None:
        msg += " (for a job that ended in another cluster, give its checkpoint storage: --storage, storage=)"
    return msg


def _unknown_to(storage: Location | None) -> str:
    if storage is None:
        return "this cluster knows no"
    where = absolute_location("storage", storage)
    if ray.is_initialized():
        return f"neither this cluster nor {where} knows a"
    return f"no Ray cluster was joined, and {where} knows no"


def _by_id(text: str, storage: Location | None) -> KnownJob | None:
    try:
        report = load_from_cluster(text) if ray.is_initialized() else None
    except CorruptSnapshotError:
        return None  # the list of all jobs says whether the job has a JobMaster
    if report is not None:
        is_led = has_master(text)
        if storage is None or report.status.is_terminal or is_led:
            return KnownJob(report, is_led)
    return archived_job(storage, text) if storage is not None and _is_job_id(text) else None


def _known_to_cluster() -> list[KnownJob]:
    masters, listed = jobs_with_master(), list_cluster()
    reports = {job_id: report for job_id, report in listed.items() if isinstance(report, JobReport)}
    running = {
        job_id for job_id in masters if job_id not in reports or not reports[job_id].status.is_terminal
    }
    for report in _ask(running):
        reports[report.job_id] = report
    problems = {
        **dict.fromkeys(masters, "its JobMaster does not answer, and the cluster has no report of the job"),
        **{job_id: str(error) for job_id, error in listed.items() if job_id not in reports},
    }
    return [
        *(KnownJob(report, report.job_id in masters) for report in reports.values()),
        *(
            KnownJob.unreadable(job_id, problem, has_master=job_id in masters)
            for job_id, problem in problems.items()
            if job_id not in reports
        ),
    ]


def _ask(job_ids: Iterable[str]) -> list[JobReport]:
    """The reports that JobMasters return; a JobMaster that is restarting returns no report."""
    asked: list[Any] = []
    for job_id in job_ids:
        try:
            asked.append(find_master(job_id).status.remote(job_id))
        except ValueError:
            continue  # the JobMaster has ended since the names were listed
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_TIMEOUT) if asked else ([], [])
    reports: list[JobReport] = []
    for answer in answered:
        try:
            reports.append(ray.get(answer))
        except (ray.exceptions.RayError, ValueError):
            continue  # the caller shows the last report in the cluster, if any
    return reports
