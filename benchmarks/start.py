"""How long a small job takes from its submission to its end: the first of a program, and later ones.

    python benchmarks/start.py --json start.json

The job is the keyed sum of 30 records in two vertices with two subtasks each. The first job starts when
Ray is up. Then every round runs one job with the default settings, and one that starts new processes
(`reuse_processes=False`). With the default settings, subtasks run in processes that earlier jobs have left.
Every job starts a JobMaster of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Figures, cluster, machine, middle, options, scratch, spread, table, versions
from measured_jobs import keyed_sum

from penstock.actors import RayJobHandle

_RECORDS = 30
_PATIENCE = 120.0


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, rounds=5).parse_args(arguments)
    warm, new = [], []
    with scratch() as folder, cluster():
        first = seconds_of_job(folder)
        for _ in range(given.rounds):
            warm.append(seconds_of_job(folder))
            new.append(seconds_of_job(folder, reuse_processes=False))
    ratios = [after / before for after, before in zip(warm, new, strict=True)]
    figures = Figures()
    figures.ratios["second_job_warm_vs_new_processes"] = middle(ratios)
    figures.seconds |= {
        "first_job_seconds": first,
        "second_job_seconds": middle(warm),
        "second_job_in_new_processes_seconds": middle(new),
    }
    figures.details |= {"warm": warm, "new": new}
    lines = [
        ["the first of a program", f"{first:.2f} s", "", ""],
        ["a later one", f"{middle(warm):.2f} s", f"{spread(warm)} s", f"{middle(ratios):.2f}"],
        ["a later one, new processes", f"{middle(new):.2f} s", f"{spread(new)} s", "1.00"],
    ]
    print(table(["job", "submit to end", f"of {given.rounds} jobs", "x new processes"], lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
