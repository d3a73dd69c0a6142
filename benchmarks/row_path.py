"""The speed of rows: a keyed sum, a chain and a process function, against a bare Python loop and Bytewax.

    python benchmarks/row_path.py --json row_path.json

All contenders run the functions of `workload.py`. Penstock takes a checkpoint every second, and Bytewax a
snapshot. In every round the contenders run one after another, for a few seconds each. Start-up and warm-up do
not count. A ratio compares two contenders of one round, so a machine that slows down slows both. The table
shows the median of all rounds.

The table also shows the processor time per row, summed over all processes of a contender except Penstock's
JobMaster. Users see the rate. But on a busy machine a contender with several processes gets a larger share of
the processors. Processor time is fair to both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import bytewax_worker
from measure import (
    Figures,
    Steady,
    call,
    cluster,
    machine,
    middle,
    options,
    rows_a_second,
    scratch,
    spread,
    steady,
    table,
    versions,
)
from measured_jobs import chain, chain_of_rows, keyed_sum, process_of_rows, sum_of_rows
from workload import bare_chain, bare_keyed_sum, bare_sum_of_rows

LOOP, CHAIN_LOOP = "bare loop, keyed sum", "bare loop, chain"
ONE, TWO = "penstock, keyed sum 1x1", "penstock, keyed sum 2x2"
ROWS_LOOP, ROWS = "bare loop, keyed sum of dicts", "penstock, keyed sum of dicts"
ROWS_CHAIN, ROWS_PROCESS = "penstock, chain of dicts", "penstock, process function, dicts"
CHAIN, BYTEWAX = "penstock, chain", "bytewax, keyed sum, one worker"

#: Name of each ratio, its numerator, its denominator and its target.
RATIOS = [
    ("keyed_sum_1x1_vs_bytewax", ONE, BYTEWAX, "at least 3.50"),
    ("keyed_sum_2x2_vs_bytewax", TWO, BYTEWAX, "at least 2.50"),
    ("keyed_sum_1x1_vs_bare_loop", ONE, LOOP, ""),
    ("chained_vs_bare_loop", CHAIN_LOOP, CHAIN, "at most 1.60"),
    ("keyed_sum_of_dicts_vs_bare_loop", ROWS, ROWS_LOOP, ""),
    ("process_of_dicts_vs_bare_loop", ROWS_PROCESS, ROWS_LOOP, ""),
    ("chain_of_dicts_vs_chain_of_tuples", ROWS_CHAIN, CHAIN, ""),
]


class RowPath:
    """Runs the rounds, and keeps their results.

    Args:
        folder: Folder for checkpoints.
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
        self.runs: dict[str, list[Steady]] = {}

    def run_round(self) -> None:
        """Run every contender once; contenders that are compared run shortly after one another."""
        self._add(LOOP, call(self._records, bare_keyed_sum))
        self._add(ONE, steady(keyed_sum(self._folder, 1), "sum", self._warm_up, self._seconds))
        if self._with_bytewax:
            self._add(BYTEWAX, bytewax_worker.steady(self._folder, self._warm_up, self._seconds))
        self._add(TWO, steady(keyed_sum(self._folder, 2), "sum", self._warm_up, self._seconds))
        self._add(CHAIN, steady(chain(self._folder), "with_key", self._warm_up, self._seconds))
        self._add(CHAIN_LOOP, call(self._records, bare_chain))
        self._add(
            ROWS_CHAIN, steady(chain_of_rows(self._folder), "measurement", self._warm_up, self._seconds)
        )
        self._add(ROWS, steady(sum_of_rows(self._folder), "sum", self._warm_up, self._seconds))
        self._add(ROWS_LOOP, call(self._records, bare_sum_of_rows))
        self._add(ROWS_PROCESS, steady(process_of_rows(self._folder), "sum", self._warm_up, self._seconds))

    def rates(self, name: str) -> list[float]:
        """Records per second of a contender, in every round."""
        return [run.rate for run in self.runs[name]]

    def efforts(self, name: str) -> list[float]:
        """Processor seconds per record of a contender, in every round."""
        return [run.effort for run in self.runs[name]]

    def _add(self, name: str, run: Steady) -> None:
        self.runs.setdefault(name, []).append(run)


def figures_of(path: RowPath) -> tuple[Figures, list[list[str]]]:
    """The figures, and the lines of the table of ratios."""
    figures, lines = Figures(), []
    for name, above, below, target in RATIOS:
        if above not in path.runs or below not in path.runs:
            continue
        ratios = [a / b for a, b in zip(path.rates(above), path.rates(below), strict=True)]
        efforts = [b / a for a, b in zip(path.efforts(above), path.efforts(below), strict=True)]
        figures.ratios[name] = middle(ratios)
        figures.ratios[f"{name}_by_processor_time"] = middle(efforts)
        lines.append(
            [name, f"{middle(ratios):.2f}", target, spread(ratios), f"{middle(efforts):.2f}", spread(efforts)]
        )
    for name in path.runs:
        figures.rates[name] = middle(path.rates(name))
        figures.seconds[f"{name}, processor time a row"] = middle(path.efforts(name))
    figures.details["checkpoints"] = {
        name: [run.checkpoints for run in runs] for name, runs in path.runs.items()
    }
    figures.details["rates"] = {name: path.rates(name) for name in path.runs}
    return figures, lines


def add_memory(figures: Figures, runs: Sequence[Steady]) -> str:
    """Keep the growth of the memory of the subtasks' processes, and return it as a sentence."""
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
    parser.add_argument("--without-peers", action="store_true", help="do not install or run other systems")
    given = parser.parse_args(arguments)
    with_bytewax = not given.without_peers
    if with_bytewax:
        bytewax_worker.prepare()
    with scratch() as folder, cluster():
        path = RowPath(folder, given.records, given.seconds, given.warm_up, with_bytewax)
        for number in range(given.rounds):
            path.run_round()
            print(f"round {number + 1} of {given.rounds} done", file=sys.stderr, flush=True)
    figures, lines = figures_of(path)
    memory = add_memory(figures, path.runs[ONE])
    print(table(["ratio", "by rate", "target", "all rounds", "by CPU", "all rounds"], lines), end="\n\n")
    rates = [
        [name, rows_a_second(rate), f"{figures.seconds[f'{name}, processor time a row'] * 1e9:,.0f} ns"]
        for name, rate in figures.rates.items()
    ]
    print(table(["contender", "rows/s", "CPU a row"], rates), end="\n\n")
    completed = sum(sum(counts) for counts in figures.details["checkpoints"].values())
    print(f"{memory} Checkpoints that completed meanwhile: {completed}.\n{machine().in_words()}")
    figures.write(given.json, versions(**({"bytewax": bytewax_worker.VERSION} if with_bytewax else {})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
