"""The simulation as a program; see the package's text.

It is the only part that reaches outside: it prints, and spreads many seeds over processes.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from simulated_jobs.simulation import (
    SimulationResult,
    describe_failure,
    run_seed,
    summarise,
)

#: Seeds that a process is given at a time.
_CHUNK = 2

#: Seeds of a process, until its memory goes with it: each leaves about 4 MB of garbage.
_SEEDS_OF_A_PROCESS = 50

#: Objects that a process may make before the garbage of cycles is looked for; dozens of seeds make as many.
_UNTIL_COLLECTION = 400_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; returns the exit code: 0 only when every seed passed."""
    parser = argparse.ArgumentParser(
        prog="python tests/simulate.py",
        description="Simulates whole jobs with failures; the same seed gives the same run.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="run this one seed")
    what.add_argument(
        "--seeds", type=_range, metavar="A:B", help="run the seeds from A up to, not including, B"
    )
    parser.add_argument(
        "--trace", action="store_true", help="with --seed: print every single thing that happens"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="with --seeds: how many processes run them"
    )
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _run_one(options.seed, trace=options.trace)
    return _run_many(options.seeds, options.processes)


def _run_one(seed: int, *, trace: bool) -> int:
    result = run_seed(seed, _write if trace else None)
    if not result.passed:
        for line in describe_failure(result):
            _write(line)
        return 1
    state = "ended" if result.state is None else result.state.value
    _write(
        f"seed {seed} passed: the job has {state} after {result.moves} moves, {result.seconds:.3f} virtual "
        f"seconds, {result.attempts} attempts, {result.completed} checkpoints"
    )
    injected = ", ".join(f"{kind.value} {count}" for kind, count in result.happened.items())
    _write(f"failures injected that really happened: {injected or 'none'}")
    return 0


def _run_many(seeds: range, processes: int) -> int:
    begun = time.monotonic()
    summary = summarise(run_in_processes(seeds, processes), _write)
    seconds = time.monotonic() - begun
    _write(f"{len(seeds)} seeds in {seconds:.1f} s ({len(seeds) / max(seconds, 1e-9):.1f} seeds/s)")
    for line in summary.lines():
        _write(line)
    return 1 if summary.failed else 0


def run_in_processes(seeds: range, processes: int) -> Iterator[SimulationResult]:
    """Run seeds in processes that are forked from this one."""
    # The cycle collector takes a fifth of a run. A process that ends soon needs none.
    at_once = max(1, processes) * _SEEDS_OF_A_PROCESS
    for first in range(0, len(seeds), at_once):
        with ProcessPoolExecutor(max(1, processes), initializer=gc.disable) as pool:
            yield from pool.map(run_seed, seeds[first : first + at_once], chunksize=_CHUNK)


def collect_seldom() -> None:
    """Let the cycle collector look seldom, and not at what is there already: that is a quarter of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_UNTIL_COLLECTION, 2, 2)


def _range(text: str) -> range:
    first, separator, end = text.partition(":")
    if not (separator and first.isdigit() and end.isdigit() and int(first) < int(end)):
        msg = f"{text!r} is no range of seeds; give A:B with A below B, such as 0:1000"
        raise argparse.ArgumentTypeError(msg)
    return range(int(first), int(end))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
