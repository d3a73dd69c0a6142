"""The queries of Nexmark over rows and over columns: events a second, and a second of a core.

    python benchmarks/nexmark.py --json nexmark.json
    python benchmarks/nexmark.py --only q5 q7 --growth 2

A job reads all events of `examples/nexmark` at parallelism 1 and discards its results; it takes a checkpoint
a second. Each query runs over two numbers of events. A rate is the quotient of the differences, so start and
warm-up are left out; `start` is what the smaller run takes beyond its events. A second of a core is a second
of processor time of the job's processes. `source` reads the events and does nothing else.
"""

from __future__ import annotations

# ruff: noqa: E402 (the path comes first)
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

#: Here, and in the processes of the cluster that starts later.
EXAMPLE = str(Path(__file__).resolve().parents[1] / "examples" / "nexmark")
if EXAMPLE not in sys.path:
    sys.path.append(EXAMPLE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (EXAMPLE, os.environ.get("PYTHONPATH"))))

import nexmark_columns as columns
import nexmark_patterns as patterns
import nexmark_rows as rows
from measure import Figures, busy_seconds, cluster, machine, options, rows_a_second, scratch, table, versions
from nexmark_events import NexmarkConfig
from nexmark_source import NexmarkSource, add_events

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

#: Seconds by which the larger run must take longer than the smaller one.
_SHORTEST = 0.2


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
        run(_SOURCE, "rows", 1_000, folder)  # processes of the cluster start
        for batch_format, queries in QUERIES.items():
            count = given.rows if batch_format == "rows" else given.columns
            for query in queries:
                if given.only is not None and query not in given.only:
                    continue
                small = run(query, batch_format, count, folder)
                large = run(query, batch_format, count * given.growth, folder)
                name, sizes = f"{query}, {batch_format}", f"{small.events:,} and {large.events:,}"
                if large.seconds - small.seconds < _SHORTEST:
                    lines.append([query, batch_format, sizes, "too short", "", ""])
                    continue
                more = large.events - small.events
                rate = more / (large.seconds - small.seconds)
                figures.rates[name] = rate
                figures.seconds[f"{name}, start"] = start = max(small.seconds - small.events / rate, 0.001)
                shown = [rows_a_second(rate), "", f"{start:.1f} s"]
                if large.busy > small.busy:
                    by_core = more / (large.busy - small.busy)
                    figures.rates[f"{name}, a second of a core"] = by_core
                    shown[1] = rows_a_second(by_core)
                lines.append([query, batch_format, sizes, *shown])
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
