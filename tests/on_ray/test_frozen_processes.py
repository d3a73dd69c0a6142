"""SIGSTOP and SIGCONT of each kind of process at default settings: the result stays exact."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from jobs.driving import after_checkpoints, eventually, finish, submit, wait_until
from jobs.nodes import Nodes, counted_on_workers, lives, send, three_nodes
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, lines, paced_lines

from penstock import JobStatus
from penstock.cluster import JobReport, RayJobHandle

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

COUNT, RATE = 3_000, 3_000.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with three_nodes() as started:
        yield started


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes; those that live at the end go on."""
    for pid in pids:
        send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def counting(folder: Path) -> RayJobHandle:
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=folder / "go")
    return submit(counted_on_workers(folder, source, parallelism=2))


def finish_exactly(job: RayJobHandle, folder: Path) -> None:
    (folder / "go").touch()
    finish(job)
    assert_exactly_once(folder / "out", lines(COUNT))
    assert hidden_files(folder / "out") == []


def victims(report: JobReport, kind: str) -> list[int]:
    assert report.master is not None
    of_kind = {
        "source": [p.pid for p in report.processes if p.subtask.vertex == "lines"][:1],
        "count": [p.pid for p in report.processes if p.subtask.vertex == "count"][:1],
        "all subtasks": [p.pid for p in report.processes],
        "JobMaster": [report.master.pid],
    }
    return of_kind[kind]


@pytest.mark.parametrize("kind", ["source", "count", "all subtasks", "JobMaster"])
def test_a_process_that_is_frozen_for_good_is_replaced(tmp_path: Path, nodes: Nodes, kind: str) -> None:
    job = counting(tmp_path)
    before = after_checkpoints(job, 2)
    pids = victims(before, kind)
    with frozen(pids):
        after = wait_until(
            job,
            "another attempt",
            lambda r: r.statistics.attempt > 1 and r.status is JobStatus.RUNNING,
        )
        after_checkpoints(job, after.statistics.completed_checkpoints + 2)
    finish_exactly(job, tmp_path)
    eventually("the end of the frozen processes", lambda: not any(map(lives, pids)))


@pytest.mark.parametrize("kind", ["count", "all subtasks", "JobMaster"])
def test_a_process_that_is_frozen_for_three_seconds_costs_nothing(
    tmp_path: Path, nodes: Nodes, kind: str
) -> None:
    job = counting(tmp_path)
    before = after_checkpoints(job, 2)
    with frozen(victims(before, kind)):
        time.sleep(3.0)
    after_checkpoints(job, before.statistics.completed_checkpoints + 2)

    finish_exactly(job, tmp_path)


@pytest.mark.parametrize("server", ["raylet", "gcs_server"])
def test_a_server_of_ray_that_is_frozen_for_a_while_goes_on(
    tmp_path: Path, nodes: Nodes, server: str
) -> None:
    """The raylet of a worker node for two seconds, the GCS for twenty: no process is replaced."""
    job = counting(tmp_path)
    before = after_checkpoints(job, 2)
    if server == "raylet":
        pids, seconds = [nodes.hosting(before, "count").raylet_pid], 2.0
    else:
        mine = psutil.Process(os.getpid()).children()
        pids, seconds = [p.pid for p in mine if p.name() == "gcs_server"], 20.0
    assert len(pids) == 1
    with frozen(pids):
        time.sleep(seconds)
    report = wait_until(job, "a report", lambda r: True)
    assert (report.master, report.statistics.attempt) == (before.master, 1)
    after_checkpoints(job, report.statistics.completed_checkpoints + 2)

    finish_exactly(job, tmp_path)
