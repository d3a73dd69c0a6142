"""Rows through the whole path, beside a bare Python loop and beside Bytewax on the same work in the same run.

    python benchmarks/row_path.py --json row_path.json

The work is source -> map -> key_by -> keyed sum -> nowhere, with a checkpoint (Bytewax: a snapshot) every
second. Only the steady part counts: start-up and the first seconds are left out. Rounds are interleaved, so a
machine that slows down slows everybody; medians of the rounds are compared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from jobs import chain, keyed_sum
from measure import (
    Figures,
    middle,
    options,
    per_second,
    rows_a_second,
    running,
    sample,
    scratch,
    shut_down,
    spread,
    steady,
    table,
    versions,
)
from workload import bare_chain, bare_keyed_sum

BYTEWAX = "0.21.1"
_HERE = Path(__file__).parent
_ENVIRONMENT = _HERE.parent / ".venv-bytewax"


@dataclass(slots=True)
class Rounds:
    """Rates of every contender, one entry a round."""

    rates: dict[str, list[float]] = field(default_factory=dict)

    def add(self, contender: str, rate: float) -> None:
        """A round's rate."""
        self.rates.setdefault(contender, []).append(rate)

    def median(self, contender: str) -> float:
        """The rate to quote."""
        return middle(self.rates[contender])


def bytewax_python() -> Path:
    """Python of Bytewax's own environment, which is made when it is missing."""
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_ENVIRONMENT)], check=True)
    installed = subprocess.run([str(python), "-c", "import bytewax"], check=False, capture_output=True)
    if installed.returncode != 0:
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"bytewax=={BYTEWAX}"], check=True)
    return python


def bytewax_rate(seconds: float, warm_up: float) -> float:
    """Records a second of one Bytewax worker with recovery on."""
    python = bytewax_python()
    with scratch() as folder:
        recovery, out = folder / "recovery", folder / "counts"
        recovery.mkdir()
        subprocess.run([str(python), "-m", "bytewax.recovery", str(recovery), "1"], check=True)
        environment = {
            **os.environ,
            "PENSTOCK_BENCH_OUT": str(out),
            "PENSTOCK_BENCH_SECONDS": str(seconds + warm_up),
        }
        command = ["-m", "bytewax.run", "bytewax_flow:flow", "-r", str(recovery), "-s", "1", "-b", "0"]
        subprocess.run([str(python), *command], check=True, cwd=_HERE, env=environment, timeout=120)
        told = [tuple(map(float, line.split())) for line in out.read_text().splitlines()]
    begun = told[0][0] + warm_up
    counted = [(at, records) for at, records in told if at >= begun]
    return (counted[-1][1] - counted[0][1]) / (counted[-1][0] - counted[0][0])


def one_round(rounds: Rounds, seconds: float, warm_up: float, bare: int) -> None:
    """Every contender once."""
    rounds.add("bare loop, keyed sum", per_second(bare, bare_keyed_sum))
    rounds.add("bytewax", bytewax_rate(seconds, warm_up))
    for parallelism in (1, 2):
        with scratch() as storage:
            job = keyed_sum(storage, parallelism)
            rounds.add(f"{parallelism}x{parallelism}", steady(job, "sum", warm_up, seconds).rate)
    rounds.add("bare loop, chain", per_second(bare, bare_chain))
    with scratch() as storage:
        rounds.add("chain", steady(chain(storage), "with_key", warm_up, seconds).rate)


def memory_growth(seconds: float) -> tuple[float, float, int]:
    """Resident megabytes of a job's subtasks early and late, and the records in between."""
    with scratch() as storage, running(keyed_sum(storage, 1), "sum") as job:
        time.sleep(seconds)
        early = sample(job, "sum")
        time.sleep(2 * seconds)
        late = sample(job, "sum")
    return early.memory / 1e6, late.memory / 1e6, late.records - early.records


def main() -> int:
    """Measure and print."""
    parser = options(__doc__, rounds=3, seconds=5.0, warm_up=2.0, bare=2_000_000)
    chosen = parser.parse_args()
    rounds = Rounds()
    for _ in range(chosen.rounds):
        one_round(rounds, chosen.seconds, chosen.warm_up, chosen.bare)
    early, late, between = memory_growth(chosen.seconds)
    shut_down()

    bytewax = rounds.median("bytewax")
    figures = Figures()
    figures.ratios = {
        "keyed_sum_1x1_vs_bytewax": rounds.median("1x1") / bytewax,
        "keyed_sum_2x2_vs_bytewax": rounds.median("2x2") / bytewax,
        "chained_vs_bare_loop": rounds.median("bare loop, chain") / rounds.median("chain"),
        "memory_late_vs_early": late / early,
    }
    figures.rates = {contender: rounds.median(contender) for contender in rounds.rates}
    figures.details = {
        "rounds": rounds.rates,
        "memory_mb": [early, late],
        "records_between": between,
    }
    figures.write(chosen.json, versions(bytewax=BYTEWAX))

    print(
        table(
            ["what", "rows/s", "vs bytewax", "rounds, M rows/s"],
            [
                [name, rows_a_second(rounds.median(name)), f"{rounds.median(name) / bytewax:.2f}",
                 spread([rate / 1e6 for rate in rates])]
                for name, rates in rounds.rates.items()
            ],
        )
    )
    print(f"\na chain takes {figures.ratios['chained_vs_bare_loop']:.2f} times the bare loop's time")
    print(f"memory: {early:.0f} MB, after {between / 1e6:.1f} M more records {late:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
