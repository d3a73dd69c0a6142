"""The queries of Nexmark over rows and over columns: events a second, and a second of a core.

    python benchmarks/nexmark.py --json nexmark.json
    python benchmarks/nexmark.py --only q5 q7 --growth 2

A job reads all events of `examples/nexmark` at parallelism 1 and discards its results; it takes a checkpoint
a second. Each query runs over two numbers of events. A rate is the quotient of the differences, so start and
warm-up are left out; `start` is what the smaller run takes beyond its events. A second of a core is a second
of processor time of the job's processes. `source` reads the events and does nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

EXAMPLES = str(Path(__file__).resolve().parents[1] / "examples")
if EXAMPLES not in sys.path:
    # In front of this folder, whose benchmark has the same name; and before Ray starts, which hands it on.
    sys.path.insert(0, EXAMPLES)

from measure import Figures, busy_seconds, cluster, machine, options, rows_a_second, scratch, table, versions
from nexmark import columns, patterns, rows
from nexmark.events import NexmarkConfig
from nexmark.source import NexmarkSource, add_events

from penstock import Checkpointing, DataStream, DiscardSink, JobStatus, StreamEnvironment
from penstock.cluster import RayJobHandle

Query = Callable[[DataStream[Any], NexmarkConfig], DataStream[Any]]
Format = Literal["rows", "arrow"]

_CONFIG = NexmarkConfig(seed=7)
_SOURCE = "source"
QUERIES: Mapping[Format, Mapping[str, Query]] = {
    "rows": {_SOURCE: lambda events, _: events, **rows.QUERIES, **patterns.QUERIES},
    "arrow": {_SOURCE: lambda events, _: events, **columns.QUERIES},
}

#: Seconds between two looks at a job's processes.
_LOOK = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """A finished job.

    Attributes:
        seconds: From the submission to the end.
        busy: Processor seconds of its processes.
    """

    events: int
    seconds: float
    busy: float


def run(query: str, batch_format: Format, count: int, folder: Path) -> Run:
    """Run a query over so many events."""
    env = StreamEnvironment(
        f"nexmark-{query}-{batch_format}",
        checkpointing=Checkpointing(every=1.0, storage=str(folder / f"{query}-{batch_format}-{count}")),
    )
    events = add_events(env, NexmarkSource(_CONFIG, count, batch_format=batch_format))
    QUERIES[batch_format][query](events, _CONFIG).sink("discard", DiscardSink())
    job = env.submit()
    assert isinstance(job, RayJobHandle)
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    while not (report := job.report()).status.is_terminal:
        for process in report.processes:
            last[process.pid] = busy_seconds(process.pid)
            first.setdefault(process.pid, last[process.pid])
        time.sleep(_LOOK)
    if report.status is not JobStatus.FINISHED:
        msg = f"{env.name} is {report.status.value}: {report.failure}"
        raise RuntimeError(msg)
    return Run(count, report.duration, sum(last.values()) - sum(first.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, rows=100_000, columns=1_000_000, growth=5)
    parser.add_argument("--only", nargs="+", choices=list(QUERIES["rows"]), help="some of the queries")
    given = parser.parse_args(arguments)
    figures, lines = Figures(), []
    with scratch() as folder, cluster():
        for batch_format, queries in QUERIES.items():
            count = given.rows if batch_format == "rows" else given.columns
            for query in queries:
                if given.only is not None and query not in given.only:
                    continue
                small, large = (run(query, batch_format, size, folder) for size in (count, count * given.growth))
                rate = (large.events - small.events) / max(large.seconds - small.seconds, 1e-6)
                by_core = (large.events - small.events) / max(large.busy - small.busy, 1e-6)
                start = max(small.seconds - small.events / rate, 1e-6)
                name = f"{query}, {batch_format}"
                figures.rates |= {name: rate, f"{name}, a second of a core": by_core}
                figures.seconds[f"{name}, start"] = start
                shown = [rows_a_second(rate), rows_a_second(by_core), f"{start:.1f} s"]
                lines.append([query, batch_format, f"{small.events:,} and {large.events:,}", *shown])
                print(f"{name}: done", file=sys.stderr, flush=True)
    figures.details["settings"] = {"parallelism": 1, "checkpoint every": 1.0, "config": repr(_CONFIG)}
    headings = ["query", "format", "events", "events/s", "events/s and core", "start"]
    print(table(headings, lines), end="\n\n")
    print(f"Parallelism 1, a checkpoint a second, heap state. {_CONFIG}", end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
