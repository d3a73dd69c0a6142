"""Downtime of a job when one of its processes dies.

    python benchmarks/recovery.py --json recovery.json

A job keeps state of a given size. When a checkpoint covers all of it, the process that holds it is killed
with SIGKILL. The benchmark measures the time until the restored operator has processed its first record. In
this time the death is detected, the attempt is stopped, and a new one is logged. Then another process takes
the role, the state is read, and the source continues. The restart strategy adds no delay.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from measure import Figures, cluster, machine, middle, options, running, scratch, spread, table, versions

from penstock import Checkpointing, FixedDelay, GeneratorSource, JobConfig, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.testing import kill_process

Row: TypeAlias = tuple[int, bytes]

_MEGABYTES = (1, 100, 500)
_VALUE_BYTES = 10_000
_PATIENCE = 600.0
_POLL = 0.02


@dataclass(frozen=True)
class Rows:
    """Makes rows of ten kilobytes, with this many keys."""

    keys: int

    def __call__(self, number: int) -> Row:
        return number % self.keys, number.to_bytes(8, "big") * (_VALUE_BYTES // 8)


@dataclass
class MarksFirst:
    """Writes the time of the first record to a folder; each attempt has its own copy."""

    folder: str
    seen: bool = field(default=False)

    def __call__(self, row: Row) -> Row:
        """Return the row unchanged."""
        if not self.seen:
            self.seen = True
            now = time.monotonic()
            (Path(self.folder) / f"{os.getpid()}-{now}").touch()
        return row


def key_of(row: Row) -> int:
    """The key."""
    return row[0]


def newest(before: Row, row: Row) -> Row:
    """The newest row of a key, which is its state."""
    return row


def stateful_job(
    folder: Path, keys: int, *, standby: int = 0, reuse_processes: bool = True
) -> StreamEnvironment:
    """A source, and a process that keeps the newest row of each key."""
    env = StreamEnvironment(
        "recovery",
        checkpointing=Checkpointing(every=1.0, storage=str(folder / "checkpoints")),
        restart=FixedDelay(attempts=100, delay=0),
        config=JobConfig(deployment_timeout=_PATIENCE, standby=standby, reuse_processes=reuse_processes),
    )
    marks = folder / "marks"
    marks.mkdir()
    rows = env.from_source("rows", GeneratorSource(Rows(keys), rate=max(2_000.0, keys / 5)))
    kept = rows.key_by(key_of).reduce("state", newest)
    kept.map(MarksFirst(str(marks))).sink("discard", DiscardSink())
    return env


def first_mark_after(folder: Path, moment: float) -> float:
    """Wait for the first record after a moment; return its time.

    Raises:
        TimeoutError: No record arrived.
    """
    while True:
        marks = [float(mark.name.partition("-")[2]) for mark in (folder / "marks").iterdir()]
        after = [mark for mark in marks if mark > moment]
        if after:
            return min(after)
        if time.monotonic() - moment > _PATIENCE:
            msg = f"no record arrived within {_PATIENCE:g} s"
            raise TimeoutError(msg)
        time.sleep(_POLL)


def wait_for_checkpoint(job: RayJobHandle, keys: int) -> None:
    """Wait for the completion of a checkpoint that began after the state was full.

    Raises:
        TimeoutError: No such checkpoint completed.
    """
    deadline = time.monotonic() + _PATIENCE
    target: int | None = None
    while time.monotonic() < deadline:
        statistics = job.report().statistics
        taken = statistics.operators.get("state")
        if target is None and taken is not None and taken.records_in >= keys:
            target = statistics.completed_checkpoints + 2  # the next one may have begun before
        if target is not None and statistics.completed_checkpoints >= target:
            return
        time.sleep(_POLL)
    msg = f"no checkpoint of {keys:,} keys within {_PATIENCE:g} s"
    raise TimeoutError(msg)


def downtimes(megabytes: int, kills: int) -> list[float]:
    """Seconds from each kill to the first record after it."""
    keys = megabytes * 1_000_000 // _VALUE_BYTES
    taken = []
    with scratch() as folder, running(stateful_job(folder, keys), "state") as job:
        for _ in range(kills):
            wait_for_checkpoint(job, keys)
            victim = next(p for p in job.processes() if p.subtask.vertex == "state")
            killed = time.monotonic()
            kill_process(victim)
            taken.append(first_mark_after(folder, killed) - killed)
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, largest=max(_MEGABYTES), kills=3).parse_args(arguments)
    figures, lines = Figures(), []
    with cluster():
        for megabytes in [size for size in _MEGABYTES if size <= given.largest]:
            taken = downtimes(megabytes, given.kills)
            figures.seconds[f"{megabytes} MB of state"] = middle(taken)
            lines.append([f"{megabytes} MB", f"{middle(taken):.2f} s", f"{spread(taken)} s"])
    print(table(["state", "kill to first record", f"of {given.kills} kills"], lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
