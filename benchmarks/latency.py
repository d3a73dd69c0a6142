"""Latency of a record from source to sink, and duration of an aligned checkpoint of an idle job.

    python benchmarks/latency.py --json latency.json

A paced source gives each record its creation time. The sink, after an exchange, measures the record's age.
Both run on one machine and read one clock. Only the second half of the records and the last three quarters of
the checkpoints count.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import (
    Figures,
    cluster,
    machine,
    options,
    quantile,
    running,
    scratch,
    table,
    versions,
)

from penstock import Checkpointing, GeneratorSource, StreamEnvironment
from penstock.connectors import CommitPermit, ConnectorContext
from penstock.runtime.record.elements import Batch

_TARGET = "p50 under 60 ms"
_POLL = 0.5


def born(number: int) -> tuple[int, float]:
    """A record with its creation time."""
    return number, time.monotonic()


def key_of(record: tuple[int, float]) -> int:
    """One of a hundred keys."""
    return record[0] % 100


def newest(old: tuple[int, float], new: tuple[int, float]) -> tuple[int, float]:
    """The younger record."""
    return new


@dataclass(frozen=True)
class AgeSink:
    """Measures the age of every record, and writes all ages to a file when the job ends.

    Attributes:
        folder: Folder of the files, one per subtask.
    """

    folder: str

    def writer(self, context: ConnectorContext) -> AgeWriter:
        """The writer of one subtask."""
        return AgeWriter(Path(self.folder) / f"ages-{context.subtask}")


class AgeWriter:
    """Keeps ages in memory, because writing them immediately would distort the measurement."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ages = array("d")

    def write(self, batch: Batch) -> None:
        """Keep the age of each record."""
        now = time.monotonic()
        self._ages.extend(now - record[1] for record in batch.rows)  # type: ignore[union-attr]

    def prepare_commit(self) -> Sequence[Any]:
        """There is nothing to commit."""
        return ()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """There is nothing to commit."""

    def close(self) -> None:
        """Write the ages to the file."""
        self._path.write_bytes(self._ages.tobytes())


def paced_job(
    folder: Path, rate: float, buffer_timeout: float, every: float, parallelism: int = 1
) -> StreamEnvironment:
    """Build the job: source, `key_by`, the newest record of each key, and the sink that measures ages."""
    env = StreamEnvironment(
        "latency",
        parallelism=parallelism,
        buffer_timeout=buffer_timeout,
        checkpointing=Checkpointing(every=every, storage=str(folder / "checkpoints")),
    )
    records = env.from_source("records", GeneratorSource(born, rate=rate))
    records.key_by(key_of).reduce("newest", newest).sink("ages", AgeSink(str(folder)))
    return env


def ages(rate: float, buffer_timeout: float, seconds: float) -> list[float]:
    """Ages of the records of the second half of a run, sorted."""
    with scratch() as folder:
        with running(paced_job(folder, rate, buffer_timeout, every=1.0), "newest"):
            time.sleep(seconds)
        noted = array("d", b"".join(path.read_bytes() for path in folder.glob("ages-*")))
    return sorted(noted[len(noted) // 2 :])


def idle_checkpoints(seconds: float, parallelism: int) -> list[float]:
    """Seconds from trigger to completion of checkpoints, with a record only now and then; sorted."""
    durations: dict[int, float] = {}
    with scratch() as folder, running(paced_job(folder, 10.0, 0.1, 0.2, parallelism), "newest") as job:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            time.sleep(_POLL)
            for taken in job.report().checkpoint_history:
                if taken.duration is not None and taken.failure is None:
                    durations[taken.checkpoint_id] = taken.duration
    # During the first checkpoints, the processes still load modules.
    settled = [durations[checkpoint_id] for checkpoint_id in sorted(durations)]
    return sorted(settled[len(settled) // 4 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, rate=10_000.0, seconds=15.0).parse_args(arguments)
    figures, lines = Figures(), []

    def add(name: str, measured: Sequence[float], target: str = "") -> None:
        p50, p99 = quantile(measured, 0.5), quantile(measured, 0.99)
        figures.seconds |= {f"{name}, p50": p50, f"{name}, p99": p99}
        lines.append([name, f"{p50 * 1e3:.1f} ms", f"{p99 * 1e3:.1f} ms", f"{len(measured):,}", target])

    with cluster():
        for timeout in (0.005, 0.1):
            name = f"record at {given.rate:,.0f}/s, buffer timeout {timeout * 1e3:g} ms"
            add(name, ages(given.rate, timeout, given.seconds))
        for parallelism in (1, 2):
            name = f"aligned checkpoint when idle, {parallelism}x{parallelism}"
            add(name, idle_checkpoints(given.seconds, parallelism), _TARGET)
    print(table(["what", "p50", "p99", "measured", "target"], lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
