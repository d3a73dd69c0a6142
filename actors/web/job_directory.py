"""Finds the jobs that a server shows: those of its cluster, and those that have ended and left a report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.actors.client.archived_jobs import archived_jobs
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.client.jobs import KnownJob, cluster_jobs, find_job, with_archived
from penstock.actors.shared.archive import UnreadableReport
from penstock.actors.shared.job_report import JobReport

#: Seconds until a storage is listed again: it may hold thousands of reports.
_STORAGE_INTERVAL: Final = 30.0


class JobDirectory:
    """All jobs of the joined cluster, if any, and of a storage. Its methods block; threads may share it.

    Args:
        storage: Where to look for reports of ended jobs besides the cluster.
        clock: Monotonic seconds.
    """

    def __init__(self, storage: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._archived: tuple[list[JobReport], list[UnreadableReport]] = ([], [])
        self._listed_at: float | None = None

    @property
    def storage(self) -> str | None:
        """Where it looks besides the cluster."""
        return self._storage

    def all(self) -> list[KnownJob]:
        """All jobs, oldest first.

        Raises:
            StorageError: The storage can't be read.
        """
        now = self._clock()
        if self._storage is not None and (
            self._listed_at is None or now - self._listed_at >= _STORAGE_INTERVAL
        ):
            self._archived = archived_jobs(self._storage)
            self._listed_at = now
        return with_archived(cluster_jobs(), *self._archived)

    def find(self, job: str) -> RayJobHandle:
        """A job by its id, the beginning of its id, or its name.

        Raises:
            ConfigurationError: There is no such job, or there are several.
            StorageError: The storage can't be read.
        """
        return find_job(job, self._storage)
