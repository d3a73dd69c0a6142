"""How long a record is on its way, and how long an aligned checkpoint takes when little happens.

    python benchmarks/latency.py --json latency.json

A paced source stamps every record with its time of birth; the last operator, behind an exchange, notes its
age. Both are on one machine, so they read one clock.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import Figures, options, quantile, running, scratch, shut_down, table, versions

from penstock.runtime import Checkpointing, CommitPermit, ConnectorContext, GeneratorSource, StreamEnvironment
from penstock.runtime.record.elements import Batch


def born(number: int) -> tuple[int, float]:
    """A record that knows when it was made."""
    return number, time.time()


def key_of(record: tuple[int, float]) -> int:
    """One of a hundred keys."""
    return record[0] % 100


def newest(old: tuple[int, float], new: tuple[int, float]) -> tuple[int, float]:
    """The younger record."""
    return new


@dataclass(frozen=True)
class AgeSink:
    """Notes the age of every record and writes all ages into a file at each pre-commit."""

    folder: str

    def writer(self, context: ConnectorContext) -> AgeWriter:
        """The writer of one subtask."""
        return AgeWriter(Path(self.folder) / f"ages-{context.subtask}-{context.attempt}")


class AgeWriter:
    """Notes ages."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._ages: list[float] = []

    def write(self, batch: Batch) -> None:
        """Note the age of each record."""
        now = time.time()
        self._ages.extend(now - record[1] for record in batch.rows)

    def prepare_commit(self) -> list[Any]:
        """Write the ages down."""
        self._file.writelines(json.dumps(age) + "\n" for age in self._ages)
        self._file.flush()
        self._ages.clear()
        return []

    def commit(self, committables: list[Any], permit: CommitPermit) -> None:
        """There is nothing to commit."""

    def abort(self, committables: list[Any]) -> None:
        """There is nothing to abort."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def paced_job(folder: Path, rate: float, buffer_timeout: float, every: float) -> StreamEnvironment:
    """source -> key_by -> newest per key -> ages."""
    env = StreamEnvironment(
        "latency",
        buffer_timeout=buffer_timeout,
        checkpointing=Checkpointing(every=every, storage=str(folder / "checkpoints")),
    )
    records = env.from_source("records", GeneratorSource(born, rate=rate))
    records.key_by(key_of).reduce("newest", newest).sink("ages", AgeSink(str(folder)))
    return env


def ages(rate: float, buffer_timeout: float, seconds: float) -> list[float]:
    """Ages of the records of the second half of a run, sorted."""
    with scratch() as folder:
        with running(paced_job(folder, rate, buffer_timeout, 1.0), "newest"):
            time.sleep(seconds)
        noted = [float(line) for path in folder.glob("ages-*") for line in path.read_text().splitlines()]
    return sorted(noted[len(noted) // 2 :])


def idle_checkpoints(seconds: float) -> list[float]:
    """Durations of the checkpoints of a job that processes next to nothing, sorted."""
    with scratch() as folder, running(paced_job(folder, 10.0, 0.1, 0.2), "newest") as job:
        time.sleep(seconds)
        history = job.report().checkpoint_history
        return sorted(taken.duration for taken in history if taken.duration is not None)


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__, rate=10_000.0, seconds=12.0).parse_args()
    figures = Figures()
    rows = []
    for timeout in (0.005, 0.1):
        measured = ages(chosen.rate, timeout, chosen.seconds)
        p50, p99 = quantile(measured, 0.5), quantile(measured, 0.99)
        name = f"record, buffer timeout {timeout * 1000:g} ms"
        figures.seconds |= {f"{name}, p50": p50, f"{name}, p99": p99}
        rows.append([name, f"{p50 * 1000:.1f} ms", f"{p99 * 1000:.1f} ms", f"{len(measured):,}"])
    durations = idle_checkpoints(chosen.seconds)
    p50, p99 = quantile(durations, 0.5), quantile(durations, 0.99)
    figures.seconds |= {"idle aligned checkpoint, p50": p50, "idle aligned checkpoint, p99": p99}
    rows.append(["idle aligned checkpoint", f"{p50 * 1000:.1f} ms", f"{p99 * 1000:.1f} ms", len(durations)])
    shut_down()
    figures.write(chosen.json, versions())
    print(table(["what", "p50", "p99", "measured"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
