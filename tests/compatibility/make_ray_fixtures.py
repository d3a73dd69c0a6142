"""Makes the storages that jobs on Ray have left: of one that was stopped, and of one whose cluster died.

    .venv/bin/python tests/compatibility/make_ray_fixtures.py FOLDER

Run a copy of this folder, and give /tmp/kept-for-compatibility: it stands in what is written. Copy the result
to `data`. As with `make_fixtures.py`: once for each version, with its own code.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from saved_ray_job import environment, write_input

from penstock import JobStatus
from penstock.cluster import JobReport, start_local


def main(target: str) -> None:
    folder = Path(target)
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    start_local(num_cpus=4)
    try:
        stopped(folder / "ray-stopped")
        abandoned(folder / "ray-abandoned")
    finally:
        ray.shutdown()


def started(folder: Path) -> Any:
    """Start a job, let it fail once, and rescale it."""
    write_input(folder)
    job: Any = environment(folder, compacts=True).submit()
    until(job, lambda report: report.statistics.restarts >= 1 and report.status is JobStatus.RUNNING)
    done = job.statistics().completed_checkpoints
    until(job, lambda report: report.statistics.completed_checkpoints >= done + 3)
    job.rescale(counted=3)
    done = job.statistics().completed_checkpoints
    until(job, lambda report: report.statistics.completed_checkpoints >= done + 5)
    return job


def stopped(folder: Path) -> None:
    job = started(folder)
    print(job.savepoint(folder / "saved"))
    print(job.stop())
    print(job.report())


def abandoned(folder: Path) -> None:
    """Leave the storage as it is when all of the cluster dies."""
    job = started(folder)
    print(job.report())
    ray.shutdown()


def until(job: Any, condition: Callable[[JobReport], bool]) -> None:
    deadline = time.monotonic() + 90
    while not condition(job.report()):
        assert time.monotonic() < deadline, job.report()
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
