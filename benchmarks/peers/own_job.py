"""Runs a job of Penstock to its end, and measures its processor time."""

from __future__ import annotations

import time

from measure import busy_seconds

from penstock import JobStatus, StreamEnvironment
from penstock.cluster import RayJobHandle

from .report import Ended

#: Seconds between two samples of a job's processes.
_LOOK = 0.05


def run_to_end(env: StreamEnvironment, query: str, count: int) -> Ended:
    """Run a job to its end; measures the processes of its subtasks and of its JobMaster.

    Raises:
        RuntimeError: The job failed or was cancelled.
    """
    job = env.submit()
    assert isinstance(job, RayJobHandle)
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    while not (report := job.report()).status.is_terminal:
        for pid in {process.pid for process in (*report.processes, report.master) if process is not None}:
            last[pid] = busy_seconds(pid)
            first.setdefault(pid, last[pid])
        time.sleep(_LOOK)
    if report.status is not JobStatus.FINISHED:
        msg = f"{env.name} is {report.status.value}: {report.failure}"
        raise RuntimeError(msg)
    return Ended(query, count, report.duration, sum(last.values()) - sum(first.values()))
