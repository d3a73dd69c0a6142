"""Where operators run: in a thread beside the actor's event loop, or on the loop itself.

    python benchmarks/step_on.py --json step_on.json

The same keyed sum is run both ways in turn. The thread is the default, because users' functions may then
block; it would not be if it cost more than a fifth.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jobs import keyed_sum
from measure import (
    Figures,
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, seconds=6.0, rounds=3, warm_up=2.0).parse_args(arguments)
    figures, lines = Figures(), []
    with scratch() as folder, cluster():
        for parallelism in (1, 2):
            rates: dict[str, list[float]] = {"thread": [], "loop": []}
            for _ in range(given.rounds):
                for where, measured in rates.items():
                    job = keyed_sum(folder, parallelism, step_on=where)
                    measured.append(steady(job, "sum", given.warm_up, given.seconds).rate)
            ratios = [a / b for a, b in zip(rates["thread"], rates["loop"], strict=True)]
            shape = f"{parallelism}x{parallelism}"
            figures.ratios[f"thread_vs_loop_{shape}"] = middle(ratios)
            figures.rates |= {f"{where} {shape}": middle(measured) for where, measured in rates.items()}
            thread, loop = (rows_a_second(middle(measured)) for measured in rates.values())
            lines.append([f"keyed sum {shape}", f"{middle(ratios):.2f}", spread(ratios), thread, loop])
    headings = ["what", "thread / loop", "all rounds", "thread, rows/s", "loop, rows/s"]
    print(table(headings, lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
