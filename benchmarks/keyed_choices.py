"""Nanoseconds per row of `dedup`, `latest_by`, `top_n` and `lookup` over columns: the operator alone.

    python benchmarks/keyed_choices.py --json figures.json

Rows have an int64 key and a random int64 payload. Each key is in the table of the lookup. The figures are
processor time. The first figure covers all batches, even the first ones, which bring new keys. The second one
covers only the last tenth of the batches.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from measure import Figures, machine, options, table, versions

from penstock import DataStream, StateTtl
from penstock.runtime.record.elements import ArrowBatch
from penstock.testing import OperatorHarness

Build = Callable[[DataStream[Any]], DataStream[Any]]

WORKS: dict[str, Build] = {
    "dedup": lambda rows: rows.dedup("work", "key"),
    "dedup, with a TTL": lambda rows: rows.dedup("work", "key", ttl=StateTtl(1.0, time="event")),
    "latest_by": lambda rows: rows.latest_by("work", "value", "key"),
    "top_n, 10 places": lambda rows: rows.top_n("work", "value", 10, "key"),
    "top_n, 10 places, changes": lambda rows: rows.top_n("work", "value", 10, "key", change_kind="change"),
}


def in_a_table(keys: int) -> Build:
    """A lookup in a table of all keys."""
    table = pa.table({"key": np.arange(keys), "price": np.arange(keys)})
    return lambda rows: rows.lookup(table, on="key", batch_format="arrow")


def seconds_of(build: Build, keys: int, rows: int, batch_rows: int) -> list[float]:
    """The processor seconds of each batch; the event times of rows are a microsecond apart."""
    draws, taken = np.random.default_rng(7), []
    with OperatorHarness.of(build) as harness:
        for start in range(0, rows, batch_rows):
            columns = {
                "key": draws.integers(0, keys, batch_rows),
                "value": draws.integers(0, 1 << 40, batch_rows),
            }
            batch = ArrowBatch(pa.record_batch(columns), pa.array(np.arange(start, start + batch_rows)))
            begun = time.thread_time()
            for _ in harness._chain.process(batch):
                pass
            taken.append(time.thread_time() - begun)
            harness._main.clear()
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, rows=16_000_000, batch_rows=1 << 16, most_keys=1_000_000).parse_args(arguments)
    figures, lines = Figures(), []
    for keys in sorted({min(10_000, given.most_keys), given.most_keys}):
        for name, build in {**WORKS, "lookup in a table": in_a_table(keys)}.items():
            taken = seconds_of(build, keys, given.rows, given.batch_rows)
            last = taken[-max(1, len(taken) // 10) :]
            each = sum(taken) / (len(taken) * given.batch_rows)
            steady = sum(last) / (len(last) * given.batch_rows)
            figures.seconds[f"{name}, {keys:,} keys"] = each
            figures.seconds[f"{name}, {keys:,} keys, last tenth"] = steady
            lines.append([name, f"{keys:,}", f"{each * 1e9:.0f} ns", f"{steady * 1e9:.0f} ns"])
    print(table(["work", "keys", "a row", "a row of the last tenth"], lines), end="\n\n")
    print(f"{given.rows:,} rows in batches of {given.batch_rows:,}. {machine().in_words()}")
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
