"""Duration of a small job from its submission to its end, and downtime after a kill.

    python benchmarks/start.py --json start.json

The job is the keyed sum of 30 records in two vertices with two subtasks each. The first job starts when
Ray is up. Then every round runs one job with the default settings, and one that starts new processes
(`reuse_processes=False`). With the default settings, JobMaster and subtasks run in processes that earlier
jobs have left.

Then a process of a job with a megabyte of state is killed with SIGKILL, repeatedly. One job has a spare
process (`standby=1`), the other starts new processes. The benchmark measures the time until the restored
state has processed the first record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Figures, cluster, machine, middle, options, running, scratch, spread, table, versions
from measured_jobs import keyed_sum
from recovery import first_mark_after, stateful_job, wait_for_checkpoint

from penstock.cluster import RayJobHandle
from penstock.testing import kill_process

_RECORDS = 30
_KEYS = 100
_PATIENCE = 120.0
#: Seconds for a new spare to be ready: two rounds of the watch, and the start of a process.
_REFILL = 6.0


def seconds_of_job(folder: Path, *, reuse_processes: bool = True) -> float:
    """Seconds from the submission of a job to its end."""
    env = keyed_sum(folder, 2, _RECORDS, reuse_processes=reuse_processes)
    submitted = time.monotonic()
    job = env.submit()
    assert isinstance(job, RayJobHandle)
    result = job.wait(_PATIENCE)
    taken = time.monotonic() - submitted
    records = result.statistics.operators["sum"].records_in
    if records != _RECORDS:
        msg = f"the job has summed {records} records, not {_RECORDS}"
        raise RuntimeError(msg)
    return taken


def seconds_after_kills(kills: int, *, standby: int) -> list[float]:
    """Seconds from each kill of a process to the first record after it."""
    taken = []
    with scratch() as folder:
        env = stateful_job(folder, _KEYS, standby=standby, reuse_processes=False)
        with running(env, "state") as job:
            for _ in range(kills):
                time.sleep(_REFILL)
                wait_for_checkpoint(job, _KEYS)
                victim = next(p for p in job.processes() if p.subtask.vertex == "state")
                killed = time.monotonic()
                kill_process(victim)
                taken.append(first_mark_after(folder, killed) - killed)
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, rounds=5).parse_args(arguments)
    warm, new = [], []
    with scratch() as folder, cluster():
        first = seconds_of_job(folder)
        for _ in range(given.rounds):
            warm.append(seconds_of_job(folder))
            new.append(seconds_of_job(folder, reuse_processes=False))
        spare = seconds_after_kills(given.rounds, standby=1)
        none = seconds_after_kills(given.rounds, standby=0)
    ratios = [after / before for after, before in zip(warm, new, strict=True)]
    kept = [after / before for after, before in zip(spare, none, strict=True)]
    figures = Figures()
    figures.ratios |= {
        "second job": middle(warm),
        "kill to first record with standby": middle(spare),
        "second_job_warm_vs_new_processes": middle(ratios),
        "kill_with_standby_vs_new_process": middle(kept),
    }
    figures.seconds |= {
        "first_job_seconds": first,
        "second_job_seconds": middle(warm),
        "second_job_in_new_processes_seconds": middle(new),
        "kill_to_first_record_with_standby_seconds": middle(spare),
        "kill_to_first_record_in_new_process_seconds": middle(none),
    }
    figures.details |= {"warm": warm, "new": new, "spare": spare, "none": none}
    lines = [
        ["the first job of a program", f"{first:.2f} s", "", ""],
        ["a later one", f"{middle(warm):.2f} s", f"{spread(warm)} s", f"{middle(ratios):.2f}"],
        ["a later one, new processes", f"{middle(new):.2f} s", f"{spread(new)} s", "1.00"],
        [
            "kill to first record, standby",
            f"{middle(spare):.2f} s",
            f"{spread(spare)} s",
            f"{middle(kept):.2f}",
        ],
        ["kill to first record, new process", f"{middle(none):.2f} s", f"{spread(none)} s", "1.00"],
    ]
    print(table(["what", "middle", f"of {given.rounds}", "x new processes"], lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
