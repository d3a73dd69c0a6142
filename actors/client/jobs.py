"""Finding jobs again from any process of the cluster.

Those that run are found by their JobMasters, those that have ended by the record that they left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util import list_named_actors

from penstock.actors.client.cluster import join_existing
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.shared.archive import list_cluster, load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.names import NAMESPACE, job_of_master, master_name
from penstock.runtime.errors import ConfigurationError

_ANSWER_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that the cluster knows.

    Attributes:
        report: The last that it said of itself.
        has_master: Whether its JobMaster is there. A job without one that has not ended was lost: somebody
            killed its JobMaster for good.
    """

    report: JobReport
    has_master: bool

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.has_master and not self.report.status.is_terminal

    @property
    def state(self) -> str:
        """Its state in a word."""
        lost = not self.has_master and not self.report.status.is_terminal
        return "lost" if lost else self.report.status.value


def job(job: str) -> RayJobHandle:
    """The handle of a job of this cluster, running or ended.

    Args:
        job: Its id, the beginning of its id, or its name, as long as that means one job; of several jobs of
            one name it is the one that runs.

    Raises:
        ConfigurationError: There is no such job, or there are several.
        DeploymentError: There is no Ray cluster to join.
    """
    join_existing()
    record = load_from_cluster(job)
    if record is not None:
        return RayJobHandle(job, str(record["name"]))
    found = choose(job, known_jobs()).report
    return RayJobHandle(found.job_id, found.name)


def known_jobs() -> list[KnownJob]:
    """All jobs that this cluster has seen, oldest first."""
    masters = {
        job_id
        for actor in list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE and (job_id := job_of_master(actor["name"])) is not None
    }
    reports = {report.job_id: report for report in map(JobReport.from_record, list_cluster())}
    running = {
        job_id for job_id in masters if job_id not in reports or not reports[job_id].status.is_terminal
    }
    for report in _ask(running):
        reports[report.job_id] = report
    ordered = sorted(reports.values(), key=lambda report: report.submitted_at)
    return [KnownJob(report, report.job_id in masters) for report in ordered]


def choose(text: str, known: Iterable[KnownJob]) -> KnownJob:
    """The job that a user means by an id, the beginning of one, or a name.

    Raises:
        ConfigurationError: No job, or several; the message names them.
    """
    known = list(known)
    matching = [each for each in known if text in (each.report.job_id, each.report.name)]
    matching = matching or [each for each in known if text and each.report.job_id.startswith(text)]
    if len(matching) > 1:
        matching = [each for each in matching if each.is_running] or matching
    if len(matching) == 1:
        return matching[0]
    if not matching:
        ids = ", ".join(each.report.job_id for each in known) or "none"
        msg = f"this cluster knows no job '{text}'; its jobs: {ids}"
        raise ConfigurationError(msg)
    ids = ", ".join(f"{each.report.job_id} ({each.state})" for each in matching)
    msg = f"'{text}' may be any of {len(matching)} jobs: {ids}; give one id"
    raise ConfigurationError(msg)


def _ask(job_ids: Iterable[str]) -> list[JobReport]:
    """What the JobMasters say; one that is just coming back says nothing."""
    asked: list[Any] = []
    for job_id in job_ids:
        try:
            asked.append(ray.get_actor(master_name(job_id), namespace=NAMESPACE).status.remote())
        except ValueError:
            continue  # it has left since the names were listed
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_TIMEOUT) if asked else ([], [])
    reports: list[JobReport] = []
    for answer in answered:
        try:
            reports.append(ray.get(answer))
        except ray.exceptions.RayActorError:
            continue  # its last record is shown instead
    return reports
