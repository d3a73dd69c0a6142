"""Runs one Bytewax worker process with recovery, in its own environment, and samples it like a job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from measure import Sample, Steady
from peers import environments

VERSION = environments.version_of("bytewax")
_HERE = Path(__file__).resolve().parent
_PYTHON = environments.python_of("bytewax")
#: Records in a batch of the source; about the fastest size between 64 and 16,384.
BATCH = 256
#: Seconds beyond its run time after which a worker counts as stuck.
_PATIENCE = 120.0


def prepare() -> None:
    """Make the environment if it does not exist."""
    environments.prepare("bytewax")


def steady(scratch: Path, warm_up: float, seconds: float, batch: int = BATCH) -> Steady:
    """Run the keyed sum and return its steady part, which begins `warm_up` seconds after the first record."""
    store, told = scratch / "bytewax-recovery", scratch / "bytewax-told"
    store.mkdir(exist_ok=True)
    for left in store.iterdir():
        left.unlink()
    subprocess.run([str(_PYTHON), "-m", "bytewax.recovery", str(store), "1"], check=True)
    subprocess.run(
        [
            str(_PYTHON),
            "-m",
            "bytewax.run",
            "bytewax_flow:flow",
            "--recovery-directory",
            str(store),
            "--snapshot-interval",
            "1",
            "--backup-interval",
            "0",
        ],
        check=True,
        cwd=_HERE,
        timeout=warm_up + seconds + _PATIENCE,
        env={
            **os.environ,
            "PENSTOCK_BENCH_SECONDS": str(warm_up + seconds + 0.5),
            "PENSTOCK_BENCH_OUT": str(told),
            "PENSTOCK_BENCH_BATCH": str(batch),
        },
    )
    lines = [line.split() for line in told.read_text().splitlines()]
    samples = [Sample(float(at), int(records), float(busy), 0) for at, records, busy in lines]
    begins = samples[0].at + warm_up
    return Steady(tuple(s for s in samples if s.at >= begins), 0)
