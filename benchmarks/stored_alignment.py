"""Rate of a fast branch whose source also feeds a slow alignment, for each alignment mode.

    python benchmarks/stored_alignment.py --json stored_alignment.json

    numbers -> fast
    numbers -> meet
    ticks -> slow -> meet

The source of numbers makes a given number of records per second, fewer than it could. The slow branch needs a
long time for each buffer, so its barriers arrive late, and `meet` aligns most of the time. With
`alignment="hold"` an alignment stops the numbers, and with them the fast branch. With `alignment="store"`
both continue. The fast branch's rate in each mode is compared with its rate in a job without checkpoints.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from measure import (
    Figures,
    Steady,
    cluster,
    machine,
    middle,
    options,
    rows_a_second,
    running,
    scratch,
    spread,
    table,
    versions,
    watch,
)
from workload import reading, with_key

from penstock import AdvancedConfig, Checkpointing, GeneratorSource, JobConfig, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.snapshot.ids import SubtaskId

#: Ways to run the job: name and settings of its checkpoints.
WAYS: Final[Mapping[str, Mapping[str, Any] | None]] = {
    "without checkpoints": None,
    "store": {"alignment": "store"},
    "hold": {},
}


class Slow:
    """Sleeps for each record.

    Args:
        seconds: Seconds for each record.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, pair: tuple[str, int]) -> tuple[str, int]:
        """Sleep, like a service that answers one request at a time."""
        time.sleep(self._seconds)
        return pair


def meeting(
    folder: Path, rate: float, slow_seconds: float, every: float, checkpointing: Mapping[str, Any] | None
) -> StreamEnvironment:
    """Build the job; the operator to measure is `fast`."""
    taking = (
        None
        if checkpointing is None
        else Checkpointing(every=every, timeout=600, storage=str(folder), **checkpointing)
    )
    env = StreamEnvironment(
        "meeting", checkpointing=taking, config=JobConfig(advanced=AdvancedConfig(buffer_rows=1000))
    )
    numbers = env.from_source("numbers", GeneratorSource(reading, rate=rate)).map(with_key)
    numbers.rebalance().sink("fast", DiscardSink())
    ticks = env.from_source("ticks", GeneratorSource(reading)).map(with_key)
    slow = ticks.rebalance().map(Slow(slow_seconds), id="slow")
    numbers.rebalance().union(slow.rebalance()).sink("meet", DiscardSink())
    return env


def measured(name: str, given: Namespace) -> tuple[Steady, list[int]]:
    """Measure the fast branch in a new job, and the bytes that each alignment of `meet` has stored."""
    with scratch() as folder:
        env = meeting(folder, given.rate, given.slow_seconds, given.every, WAYS[name])
        with running(env, "meet") as job:
            seen = watch(job, "fast", given.warm_up, given.seconds)
            return seen, [] if WAYS[name] is None else stored_bytes(job)


def stored_bytes(job: RayJobHandle) -> list[int]:
    """Bytes that `meet` has stored for each of the last checkpoints; 0 if it held the data back."""
    meet = SubtaskId("meet", 0)
    return [each.subtasks[meet].stored_bytes for each in job.checkpoints() if meet in each.subtasks]


def print_tables(
    rates: Mapping[str, Sequence[float]],
    shares: Mapping[str, Sequence[float]],
    checkpoints: Mapping[str, int],
    stored: Mapping[str, Sequence[int]],
) -> None:
    """Print the result."""
    targets = {"store": "at least 0.90", "hold": ""}
    ratios = [
        [f"fast_branch_{name}", f"{middle(s):.2f}", targets[name], spread(s)] for name, s in shares.items()
    ]
    print(table(["ratio", "middle", "target", "all rounds"], ratios), end="\n\n")
    lines = [
        [name, rows_a_second(middle(of_rounds)), checkpoints[name], f"{max(stored[name], default=0):,}"]
        for name, of_rounds in rates.items()
    ]
    print(table(["alignment", "rows/s", "checkpoints", "most bytes stored"], lines), end="\n\n")
    print(machine().in_words())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(
        __doc__, seconds=15.0, warm_up=3.0, rounds=3, rate=50_000.0, slow_seconds=0.0002, every=0.5
    )
    given = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    stored: dict[str, list[int]] = {name: [] for name in WAYS}
    checkpoints = dict.fromkeys(WAYS, 0)
    with cluster():
        for name in list(WAYS) * given.rounds:
            seen, of_alignments = measured(name, given)
            rates[name].append(seen.rate)
            checkpoints[name] += seen.checkpoints
            stored[name] += of_alignments
    alone = rates["without checkpoints"]
    shares = {
        name: [rate / free for rate, free in zip(of_rounds, alone, strict=True)]
        for name, of_rounds in rates.items()
        if of_rounds is not alone
    }
    figures = Figures(
        ratios={f"fast_branch_{name}": middle(of_rounds) for name, of_rounds in shares.items()},
        rates={f"fast branch, {name}": middle(of_rounds) for name, of_rounds in rates.items()},
        details={"checkpoints": checkpoints, "stored bytes": stored},
    )
    print_tables(rates, shares, checkpoints, stored)
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
