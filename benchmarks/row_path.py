"""The speed of rows: a keyed sum and a chain, beside a bare Python loop and beside Bytewax.

    python benchmarks/row_path.py --json row_path.json

Everyone runs the functions of `workload.py`, with a checkpoint (Bytewax: a snapshot) every second. In every
round each contender runs for some seconds, one after the other; only the steady part counts, start-up and
warm-up are left out. A ratio is made of two contenders of one round, so a machine that slows down slows both;
the table shows the middle of all rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import bytewax_worker
from jobs import chain, keyed_sum
from measure import (
    Figures,
    Steady,
    cluster,
    machine,
    middle,
    options,
    per_second,
    rows_a_second,
    scratch,
    spread,
    steady,
    table,
    versions,
)
from workload import bare_chain, bare_keyed_sum

LOOP, CHAIN_LOOP = "bare loop, keyed sum", "bare loop, chain"
ONE, TWO = "penstock, keyed sum 1x1", "penstock, keyed sum 2x2"
CHAIN, BYTEWAX = "penstock, chain", "bytewax, keyed sum, one worker"


class RowPath:
    """Runs the rounds and keeps what they gave.

    Args:
        folder: For checkpoints.
        records: Records of a bare loop.
        seconds: Length of a steady part.
        warm_up: Seconds after the first record that do not count.
        with_bytewax: Whether Bytewax takes part.
    """

    def __init__(
        self, folder: Path, records: int, seconds: float, warm_up: float, with_bytewax: bool
    ) -> None:
        self._folder = folder
        self._records = records
        self._seconds = seconds
        self._warm_up = warm_up
        self._with_bytewax = with_bytewax
        self.rounds: list[dict[str, float]] = []
        self.jobs: dict[str, list[Steady]] = {ONE: [], TWO: [], CHAIN: []}

    def run_round(self) -> None:
        """Let every contender run once."""
        rates = {LOOP: per_second(self._records, bare_keyed_sum)}
        rates[ONE] = self._job(ONE)
        if self._with_bytewax:
            rates[BYTEWAX] = bytewax_worker.steady(self._folder, self._warm_up, self._seconds).rate
        rates[TWO] = self._job(TWO)
        before = per_second(self._records, bare_chain)
        rates[CHAIN] = self._job(CHAIN)
        rates[CHAIN_LOOP] = (before + per_second(self._records, bare_chain)) / 2
        self.rounds.append(rates)

    def ratios(self, above: str, below: str) -> list[float]:
        """One rate over another, in every round."""
        return [each[above] / each[below] for each in self.rounds]

    def _job(self, name: str) -> float:
        if name == CHAIN:
            env, operator = chain(self._folder), "with_key"
        else:
            env, operator = keyed_sum(self._folder, 1 if name == ONE else 2), "sum"
        seen = steady(env, operator, self._warm_up, self._seconds)
        self.jobs[name].append(seen)
        return seen.rate


def figures_of(path: RowPath, with_bytewax: bool) -> tuple[Figures, list[list[str]]]:
    """The figures, and the lines of the table of ratios."""
    wanted = [
        ("keyed_sum_1x1_vs_bare_loop", ONE, LOOP, ""),
        ("chained_vs_bare_loop", CHAIN_LOOP, CHAIN, "at most 1.60"),
    ]
    if with_bytewax:
        wanted[:0] = [
            ("keyed_sum_1x1_vs_bytewax", ONE, BYTEWAX, "at least 1.50"),
            ("keyed_sum_2x2_vs_bytewax", TWO, BYTEWAX, ""),
        ]
    figures, lines = Figures(), []
    for name, above, below, target in wanted:
        ratios = path.ratios(above, below)
        figures.ratios[name] = middle(ratios)
        lines.append([name, f"{middle(ratios):.2f}", target, spread(ratios)])
    for name in path.rounds[0]:
        figures.rates[name] = middle(each[name] for each in path.rounds)
    return figures, lines


def add_memory(figures: Figures, runs: Sequence[Steady]) -> str:
    """How the memory of the subtasks' processes went with the number of records; in words."""
    run = max(runs, key=lambda each: each.samples[-1].records)
    first, last = run.samples[0], run.samples[-1]
    figures.ratios["memory_growth"] = last.memory / first.memory
    figures.details["memory"] = [
        {"records": sample.records, "bytes": sample.memory} for sample in (first, last)
    ]
    return (
        f"Memory of the two processes of 1x1: {first.memory / 1e6:.0f} MB after {first.records / 1e6:.1f} M "
        f"records, {last.memory / 1e6:.0f} MB after {last.records / 1e6:.1f} M."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, records=8_000_000, seconds=8.0, rounds=3, warm_up=2.0)
    parser.add_argument("--without-bytewax", action="store_true", help="do not install or run Bytewax")
    given = parser.parse_args(arguments)
    with_bytewax = not given.without_bytewax
    if with_bytewax:
        bytewax_worker.prepare()
    with scratch() as folder, cluster():
        path = RowPath(folder, given.records, given.seconds, given.warm_up, with_bytewax)
        for number in range(given.rounds):
            path.run_round()
            print(f"round {number + 1} of {given.rounds} done", file=sys.stderr, flush=True)
    figures, lines = figures_of(path, with_bytewax)
    memory = add_memory(figures, path.jobs[ONE])
    checkpoints = {name: sum(run.checkpoints for run in runs) for name, runs in path.jobs.items()}
    figures.details |= {"checkpoints": checkpoints, "rounds": path.rounds}
    print(table(["ratio", "middle", "target", "all rounds"], lines), end="\n\n")
    rates = [[name, rows_a_second(rate)] for name, rate in figures.rates.items()]
    print(table(["contender", "rows/s"], rates), end="\n\n")
    print(memory)
    print(f"Checkpoints that completed meanwhile: {sum(checkpoints.values())}. {machine().in_words()}")
    figures.write(given.json, versions(**({"bytewax": bytewax_worker.VERSION} if with_bytewax else {})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
