"""Duration of checkpoints when a sink is too slow for its source: aligned, unaligned, and with a timeout.

    python benchmarks/checkpoint_under_backpressure.py --json checkpoint_under_backpressure.json

Source -> key_by -> running sum -> rebalance -> a sink that takes a millisecond for each record. Under back
pressure the source is as fast as possible, so every buffer is full. An aligned barrier waits until the sink
has drained them all. In the idle job, the source makes 50 records per second. The benchmark measures the time
from the trigger of a checkpoint to its completion, when everything is durable. Only checkpoints that began
after the warm-up count. Under back pressure all buffers are full by then.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from measure import Figures, cluster, machine, middle, options, running, scratch, table, versions
from workload import add, key_of, reading, with_key

from penstock import Checkpointing, GeneratorSource, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.connectors import CommitPermit, ConnectorContext
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

_POLL: Final = 0.1
_PATIENCE: Final = 900.0
#: Records per second of an idle job.
_IDLE_RATE: Final = 50.0

#: Ways to take checkpoints: name and settings.
MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned, timeout 0.2 s": {"unaligned": True, "aligned_timeout": 0.2},
}


@dataclass(frozen=True)
class SlowSink:
    """Sleeps for each record, and drops it.

    Attributes:
        seconds: Seconds for each record.
    """

    seconds: float

    def writer(self, context: ConnectorContext) -> SlowWriter:
        """The writer of one subtask."""
        return SlowWriter(self.seconds)


class SlowWriter:
    """Sleeps for each record, like a service that answers one request at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def write(self, batch: Batch) -> None:
        """Sleep once for each record."""
        for _ in range(len(batch)):
            time.sleep(self._seconds)

    def prepare_commit(self) -> Sequence[Any]:
        """There is nothing to commit."""
        return ()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """There is nothing to commit."""

    def close(self) -> None:
        """There is nothing to release."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Checkpoints of one job.

    Attributes:
        durations: Seconds of each checkpoint.
        in_flight: Bytes of in-flight data in each checkpoint.
    """

    durations: tuple[float, ...]
    in_flight: tuple[int, ...]


def slow_job(
    folder: Path, rate: float | None, sink_seconds: float, config: JobConfig, **checkpointing: Any
) -> StreamEnvironment:
    """A job of three vertices and two exchanges; the operator to measure is `slow`."""
    env = StreamEnvironment(
        "slow-sink",
        config=config,
        checkpointing=Checkpointing(every=0.5, timeout=_PATIENCE, storage=str(folder), **checkpointing),
    )
    (
        env.from_source("numbers", GeneratorSource(reading, rate=rate))
        .map(with_key)
        .key_by(key_of)
        .reduce("sum", add)
        .rebalance()
        .sink("slow", SlowSink(sink_seconds))
    )
    return env


def checkpoints(job: RayJobHandle, count: int, warm_up: int) -> Taken:
    """Wait for `count` checkpoints that began after the sink had taken `warm_up` records.

    Raises:
        RuntimeError: The job ended, or they did not complete in a quarter of an hour.
    """
    taken: dict[int, CheckpointRecord] = {}
    first: int | None = None
    deadline = time.monotonic() + _PATIENCE
    while len(taken) < count:
        report = job.report()
        if report.status.is_terminal or time.monotonic() > deadline:
            msg = f"{len(taken)} of {count} checkpoints, the job is {report.status.value}: {report.failures}"
            raise RuntimeError(msg)
        sink = report.statistics.operators.get("slow")
        if first is None and sink is not None and sink.records_in >= warm_up:
            first = 1 + max((record.checkpoint_id for record in report.checkpoint_history), default=0)
        for record in report.checkpoint_history:
            is_new = first is not None and record.checkpoint_id >= first
            if is_new and record.status is CheckpointStatus.COMPLETED:
                taken[record.checkpoint_id] = record
        time.sleep(_POLL)
    kept = [taken[checkpoint_id] for checkpoint_id in sorted(taken)[:count]]
    return Taken(
        tuple(record.duration for record in kept if record.duration is not None),
        tuple(record.in_flight_bytes for record in kept),
    )


def measured(name: str, load: str, given: Namespace) -> Taken:
    """Measure checkpoints of a new job: as many as requested, or fewer if aligned under back pressure."""
    settings, is_idle = MODES[name], load == "idle"
    config = JobConfig(advanced=AdvancedConfig(buffer_rows=given.buffer_rows, credits=given.credits))
    count = given.checkpoints if is_idle or settings else given.aligned_checkpoints
    warm_up = min(given.warm_up, 50) if is_idle else given.warm_up
    rate = _IDLE_RATE if is_idle else None
    with scratch() as folder:
        env = slow_job(folder, rate, given.sink_seconds, config, **settings)
        with running(env, "slow") as job:
            return checkpoints(job, count, warm_up)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(
        __doc__,
        checkpoints=10,
        aligned_checkpoints=2,
        sink_seconds=0.001,
        buffer_rows=4096,
        credits=8,
        warm_up=2_000,
    )
    given = parser.parse_args(arguments)
    figures, lines = Figures(), []
    with cluster():
        for name, load in product(MODES, ("idle", "under pressure")):
            what = f"{name}, {load}"
            taken = measured(name, load, given)
            p50, longest = middle(taken.durations), max(taken.durations)
            figures.seconds |= {f"{what}, p50": p50, f"{what}, longest": longest}
            figures.details[f"{what}, bytes in flight"] = list(taken.in_flight)
            in_flight = f"{round(middle(taken.in_flight)):,}"
            lines.append([what, f"{p50:.3f} s", f"{longest:.3f} s", len(taken.durations), in_flight])
    aligned, unaligned, turning = (figures.seconds[f"{name}, under pressure, p50"] for name in MODES)
    figures.ratios = {
        "aligned_vs_unaligned_under_pressure": aligned / unaligned,
        "aligned_vs_timeout_under_pressure": aligned / turning,
    }
    print(table(["checkpoints", "p50", "longest", "measured", "bytes in flight"], lines), end="\n\n")
    times = f"{aligned / unaligned:,.0f} times"
    print(f"Under pressure an aligned checkpoint takes {times} as long as an unaligned one.")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
