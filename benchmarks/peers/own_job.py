"""Runs a job of Penstock to its end, and measures its processor time."""

from __future__ import annotations

import threading
import time

from measure import busy_seconds

from penstock import JobCancelledError, JobFailedError, JobStatus, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle

from .report import Ended

#: Seconds between two samples of processor time. A report costs the JobMaster milliseconds, so reports are
#: requested at this rate only until the job runs.
_LOOK = 0.05


class _Processes:
    """The processor seconds of a job's processes: first and latest samples."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def add(self, report: JobReport) -> None:
        """Sample the processes in a report from now on."""
        for process in (*report.processes, report.master):
            if process is not None and process.pid not in self._first:
                self._first[process.pid] = self._last[process.pid] = busy_seconds(process.pid)

    def sample(self) -> None:
        """Read the processor time of all processes that still run."""
        for pid in [*self._last]:
            self._last[pid] = busy_seconds(pid) or self._last[pid]

    @property
    def seconds(self) -> float:
        """Seconds between the first and the latest samples."""
        return sum(self._last.values()) - sum(self._first.values())


def run_to_end(env: StreamEnvironment, query: str, count: int) -> Ended:
    """Run a job to its end; measures the processes of its subtasks and of its JobMaster.

    Raises:
        RuntimeError: The job failed or was cancelled.
    """
    job = env.submit()
    assert isinstance(job, RayJobHandle)
    processes = _Processes()
    while not (report := job.report()).status.is_terminal and report.status is not JobStatus.RUNNING:
        processes.add(report)
        processes.sample()
        time.sleep(_LOOK)
    has_ended = threading.Event()

    def sample() -> None:
        while not has_ended.wait(_LOOK):
            processes.sample()

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        job.wait(on_progress=processes.add)
    except (JobFailedError, JobCancelledError) as failure:
        raise RuntimeError(str(failure)) from failure
    finally:
        has_ended.set()
        sampler.join()
    return Ended(query, count, job.report().duration, processes.seconds)
