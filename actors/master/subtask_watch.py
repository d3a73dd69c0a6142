"""Keeps the leases of a job's subtasks alive, reads their counters, and publishes what the job has done."""

from __future__ import annotations

import asyncio

from penstock.actors.master.job_metrics import JobMetrics
from penstock.actors.master.job_reporter import JobReporter
from penstock.actors.master.subtask_fleet import SubtaskFleet
from penstock.actors.shared.archive import save_to_cluster
from penstock.runtime.task.statistics import SubtaskStatistics

#: Longest time between two looks at the subtasks, in seconds: renews their leases and refreshes counters.
_INTERVAL = 2.0
#: Seconds within which a subtask must tell its counters; one that is busy tells them the next time.
_PATIENCE = 1.0


class SubtaskWatch:
    """Looks at the subtasks of one job from time to time; used on the JobMaster's event loop.

    Args:
        job_id: The job.
        fleet: Its actors.
        reporter: Told the counters.
        ended: Set when the job has ended.
        lease_timeout: Seconds that a subtask lives without a sign.
    """

    def __init__(
        self,
        job_id: str,
        fleet: SubtaskFleet,
        reporter: JobReporter,
        ended: asyncio.Event,
        lease_timeout: float,
    ) -> None:
        self._job_id = job_id
        self._fleet = fleet
        self._reporter = reporter
        self._ended = ended
        self._interval = min(_INTERVAL, lease_timeout / 4)

    async def run(self) -> None:
        """Look at them until the job has ended."""
        metrics = JobMetrics(self._job_id)
        while not self._ended.is_set():
            await self.look()
            report = self._reporter.report()
            metrics.publish(report.statistics)
            save_to_cluster(report)
            try:
                await asyncio.wait_for(self._ended.wait(), self._interval)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Renew all leases and take the counters."""
        if self._ended.is_set():
            return
        members = dict(self._fleet.members)
        calls: list[asyncio.Future[tuple[int, SubtaskStatistics | None]]] = [
            asyncio.ensure_future(m.handle.renew_lease.remote()) for m in members.values()
        ]
        if not calls:
            return
        done, late = await asyncio.wait(calls, timeout=_PATIENCE)
        for call in late:
            call.cancel()
        for subtask, call in zip(members, calls, strict=True):
            if call in done and call.exception() is None:
                self._reporter.counted(subtask, *call.result())
