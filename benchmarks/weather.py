"""Time until hung processes and dead nodes are detected, and until a job recovers.

    python benchmarks/weather.py --json weather.json

The cluster has three nodes on this machine, with the health checks of `docs/failures.md`. The jobs detect
failures with the default settings. The benchmark measures the seconds

- from SIGSTOP of a subtask until the job's report names it, and until the restored state takes a record;
- from SIGSTOP of the JobMaster until another process answers as JobMaster;
- from SIGSTOP of a raylet until the cluster declares its node dead, while no job runs;
- from a cancel until no process of the job is left, while all of its subtasks and its JobMaster are stopped.

It exits with 1 when a median exceeds its goal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from measure import Figures, machine, middle, options, running, scratch, spread, table, versions
from recovery import first_mark_after, stateful_job

sys.path += [str(Path(__file__).resolve().parents[1] / "tests" / folder) for folder in (".", "on_ray")]

from jobs.nodes import Nodes, lives, three_nodes

from penstock import JobStatus, PenstockError
from penstock.cluster import JobReport, RayJobHandle

#: Promised maximum seconds.
GOALS: Final[Mapping[str, float]] = {
    "hung subtask named": 5,
    "hung subtask: records flow again": 15,
    "frozen JobMaster replaced": 30,
    "dead node noticed": 10,
    "cancel while everything hangs": 90,
}
#: Timeout of a node's health check, from `docs/failures.md`.
_TIMEOUT_MS: Final = 1_000
_PATIENCE: Final = 300.0
_POLL: Final = 0.05
#: Keys of the job's state; each has ten kilobytes.
_KEYS: Final = 100


def until(what: str, condition: Callable[[], bool]) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: The condition did not become true.
    """
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            msg = f"{what}: not within {_PATIENCE:g} s"
            raise TimeoutError(msg)
        time.sleep(_POLL)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def seen(job: RayJobHandle) -> JobReport | None:
    """The report, if the JobMaster answers."""
    with suppress(PenstockError):
        return job.report()
    return None


def well(job: RayJobHandle) -> JobReport:
    """Wait until the job runs and has completed two more checkpoints; return its report."""
    before = job.report().statistics.completed_checkpoints
    until("two checkpoints", lambda: job.report().statistics.completed_checkpoints >= before + 2)
    return job.report()


def hung_subtask(job: RayJobHandle, folder: Path, taken: Mapping[str, list[float]]) -> None:
    """Stop a subtask; measure until it is named, and until records flow again."""
    victim = next(p for p in well(job).processes if p.subtask.vertex == "state")
    began = time.monotonic()
    send(victim.pid, signal.SIGSTOP)

    def named() -> bool:
        report = seen(job)
        return report is not None and any(
            each.subtask == victim.subtask and each.silence is not None for each in report.subtasks
        )

    until("its name", named)
    taken["hung subtask named"].append(time.monotonic() - began)
    taken["hung subtask: records flow again"].append(first_mark_after(folder, began) - began)
    send(victim.pid, signal.SIGCONT)


def frozen_master(job: RayJobHandle, taken: Mapping[str, list[float]]) -> None:
    """Stop the JobMaster; measure until another one answers."""
    master = well(job).master
    assert master is not None
    began = time.monotonic()
    send(master.pid, signal.SIGSTOP)

    def replaced() -> bool:
        report = seen(job)
        return report is not None and report.master is not None and report.master.pid != master.pid

    until("another JobMaster", replaced)
    taken["frozen JobMaster replaced"].append(time.monotonic() - began)
    send(master.pid, signal.SIGCONT)


def dead_node(nodes: Nodes, taken: Mapping[str, list[float]]) -> None:
    """Freeze a node; measure until the cluster declares it dead."""
    victim = nodes.workers[-1]
    began = time.monotonic()
    victim.freeze()
    until("the death of a node", lambda: not victim.is_alive())
    taken["dead node noticed"].append(time.monotonic() - began)
    victim.thaw()
    until("the end of that node", victim.has_left)
    nodes.refill()


def hung_cancel(job: RayJobHandle, taken: Mapping[str, list[float]]) -> None:
    """Stop all processes, and cancel the job; measure until none of them is left."""
    report = well(job)
    assert report.master is not None
    pids = [*(process.pid for process in report.processes), report.master.pid]
    for pid in pids:
        send(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        job.cancel()
        until("the end of the job", lambda: job.status() is JobStatus.CANCELLED)
        until("the end of its processes", lambda: not any(map(lives, pids)))
        taken["cancel while everything hangs"].append(time.monotonic() - began)
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, rounds=3).parse_args(arguments)
    figures = Figures()
    taken: dict[str, list[float]] = {name: [] for name in GOALS}
    with three_nodes(health_check_timeout_ms=_TIMEOUT_MS) as nodes:
        for _ in range(given.rounds):
            dead_node(nodes, taken)
            with scratch() as folder, running(stateful_job(folder, _KEYS), "state") as job:
                hung_subtask(job, folder, taken)
                frozen_master(job, taken)
                hung_cancel(job, taken)
    lines = []
    for name, goal in GOALS.items():
        figures.seconds[name] = middle(taken[name])
        lines.append([name, f"{middle(taken[name]):.1f} s", f"{goal:g} s", f"{spread(taken[name])} s"])
    print(table(["what", "middle", "goal", f"of {given.rounds}"], lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    missed = [name for name, goal in GOALS.items() if figures.seconds[name] > goal]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
