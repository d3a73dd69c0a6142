"""The queries of Nexmark over rows and over columns, compared with other systems: events per core second.

    python benchmarks/nexmark.py --json nexmark.json
    python benchmarks/nexmark.py --only q5 q7 --growth 2 --without-peers
    python benchmarks/nexmark.py --only source q0 --against "PyFlink SQL"

A job reads all events of `examples/nexmark` at parallelism 1 and discards its results; it takes a checkpoint
every second. Each query runs twice, over different numbers of events. A rate is the difference in events
divided by the difference in time, so it excludes start and warm-up. `start` is the time of the smaller run
minus the time of its events. A second of a core is a second of processor time of the job's processes,
including the JobMaster's. `source` reads the events and does nothing else.

The other systems read the same events, one system after another. Flink generates them in Java, Spark reads
Parquet files, and Bytewax and Klein use the generator of rows. `tests/benchmarks/test_peers.py` compares
their results. Penstock runs each query over rows, and also over columns where it can. The mean ratio uses
columns where a query has them.
"""

from __future__ import annotations

# ruff: noqa: E402 (the path comes first)
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

#: Folder of the example, on the path of this process and of the cluster that starts later.
EXAMPLE = str(Path(__file__).resolve().parents[1] / "examples" / "nexmark")
if EXAMPLE not in sys.path:
    sys.path.append(EXAMPLE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (EXAMPLE, os.environ.get("PYTHONPATH"))))

import nexmark_columns as columns
import nexmark_patterns as patterns
import nexmark_rows as rows
from measure import Figures, cluster, machine, options, scratch, table, versions
from nexmark_events import NexmarkConfig
from nexmark_source import NexmarkSource, add_events
from peers import contenders, environments
from peers.comparison import Rate, failures_of, geometric_mean, rate_of, rates_of
from peers.own_job import run_to_end
from peers.programs import settings_of
from peers.report import Ended

from penstock import Checkpointing, DataStream, DiscardSink, StreamEnvironment

Query = Callable[[DataStream[Any], NexmarkConfig], DataStream[Any]]
Format = Literal["rows", "arrow"]

_CONFIG = NexmarkConfig(seed=7)
_SOURCE = "source"
QUERIES: Mapping[Format, Mapping[str, Query]] = {
    "rows": {_SOURCE: lambda events, _: events, **rows.QUERIES, **patterns.QUERIES},
    "arrow": {_SOURCE: lambda events, _: events, **columns.QUERIES, **patterns.COLUMN_QUERIES},
}

#: Events in a batch of Penstock's source.
_BLOCK: Mapping[Format, int] = {"rows": 4_096, "arrow": 32_768}

#: Seconds between two checkpoints; Spark takes one with each micro-batch.
_EVERY = 1.0

#: Number of events in the smaller run, by system.
_EVENTS = {"PyFlink SQL": 500_000, "Spark": 250_000, "Bytewax": 25_000, "Klein": 3_000}

_ENVIRONMENTS = {"PyFlink SQL": "flink", "Bytewax": "bytewax", "Klein": "klein"}

#: Names of the mean ratios, by system.
_RATIOS = {"PyFlink SQL": "nexmark_vs_pyflink_sql", "Spark": "nexmark_vs_spark"}


def run(query: str, batch_format: Format, count: int, folder: Path) -> Ended:
    """Run a query over `count` events."""
    env = StreamEnvironment(
        f"nexmark-{query}-{batch_format}",
        checkpointing=Checkpointing(every=_EVERY, storage=str(folder / f"{query}-{batch_format}-{count}")),
    )
    source = NexmarkSource(_CONFIG, count, batch_format=batch_format, block=_BLOCK[batch_format])
    events = add_events(env, source)
    QUERIES[batch_format][query](events, _CONFIG).sink("discard", DiscardSink())
    return run_to_end(env, query, count)


def own_rates(
    formats: Mapping[Format, Sequence[str]], counts: Mapping[Format, int], growth: int, folder: Path
) -> dict[tuple[str, Format], Rate]:
    """The rates of Penstock's queries in each format."""
    rates = {}
    with cluster():
        run(_SOURCE, "rows", 1_000, folder)  # starts processes of the cluster
        for batch_format, queries in formats.items():
            for query in queries:
                sizes = (counts[batch_format], counts[batch_format] * growth)
                small, large = (run(query, batch_format, count, folder) for count in sizes)
                rates[query, batch_format] = rate_of(small, large)
                print(f"{query}, {batch_format}: done", file=sys.stderr, flush=True)
    return rates


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, rows=50_000, columns=400_000, growth=3, scale=1.0)
    every = [*QUERIES["rows"]]
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="some of the queries")
    parser.add_argument("--against", nargs="*", choices=[*_EVENTS], default=[*_EVENTS], help="other systems")
    parser.add_argument("--without-peers", action="store_true", help="no other systems")
    parser.add_argument(
        "--best",
        action="store_true",
        help="run over rows only the queries without columns, and those of Bytewax and Klein",
    )
    given = parser.parse_args(arguments)
    if given.without_peers:
        given.against = []
    figures = Figures()
    chosen = {system: [q for q in contenders.QUERIES[system] if q in given.only] for system in given.against}
    formats: dict[Format, list[str]] = {
        name: [q for q in queries if q in given.only] for name, queries in QUERIES.items()
    }
    if given.best:
        by_rows = {q for system in ("Bytewax", "Klein") for q in chosen.get(system, ())}
        formats["rows"] = [q for q in formats["rows"] if q not in QUERIES["arrow"] or q in by_rows]
    with scratch() as folder:
        for system in given.against:
            if system != "Spark":
                environments.prepare(_ENVIRONMENTS[system])
        counts: dict[Format, int] = {"rows": given.rows, "arrow": given.columns}
        own = own_rates(formats, counts, given.growth, folder)
        show_own(own, figures)
        events = contenders.Nexmark(_CONFIG, folder, _EVERY)
        for system in given.against:
            count = max(1, round(_EVENTS[system] * given.scale))
            jobs = [(query, size) for query in chosen[system] for size in (count, count * given.growth)]
            try:
                ended = contenders.SYSTEMS[system](events, jobs)
            except RuntimeError as failure:  # keep the figures of the other systems
                print(f"{system} failed: {failure}", file=sys.stderr, flush=True)
                continue
            show_peer(system, own, rates_of(ended), figures)
            figures.details[f"{system} can't run"] = failures_of(ended)
            print(f"{system}: done", file=sys.stderr, flush=True)
    figures.details["settings"] = {"parallelism": 1, "checkpoint every": _EVERY, "config": repr(_CONFIG)}
    print(
        f"Parallelism 1, a checkpoint a second, heap state, events of a batch: {_BLOCK}. {_CONFIG}",
        end="\n\n",
    )
    print(machine().in_words())
    systems = {
        system: version("pyspark") if system == "Spark" else environments.version_of(_ENVIRONMENTS[system])
        for system in given.against
    }
    figures.write(given.json, versions(**systems))
    return 0


def show_own(own: Mapping[tuple[str, Format], Rate], figures: Figures) -> None:
    """Print Penstock's rates, and keep them."""
    lines = []
    for (query, batch_format), rate in own.items():
        keep(f"{query}, {batch_format}", rate, figures)
        lines.append([query, batch_format, *rate.shown()])
    headings = ["query", "format", "events", "events/s", "events/s and core", "start"]
    print(table(headings, lines), end="\n\n")


def keep(name: str, rate: Rate, figures: Figures) -> None:
    """Add a rate to the figures."""
    if rate.rate is not None and rate.start is not None:
        figures.rates[name] = rate.rate
        figures.seconds[f"{name}, start"] = rate.start
    if rate.by_core is not None:
        figures.rates[f"{name}, a second of a core"] = rate.by_core


def show_peer(
    system: str, own: Mapping[tuple[str, Format], Rate], rates: Mapping[str, Rate], figures: Figures
) -> None:
    """Print and keep the rates of another system, and the ratios of the rates per core."""
    best, by_rows, lines = [], [], []
    formats: list[Format] = ["arrow", "rows"]
    for query, rate in rates.items():
        keep(f"{query}, {system}", rate, figures)
        quotients = {}
        for name in formats:
            mine = own.get((query, name))
            if mine is not None and mine.by_core is not None and rate.by_core is not None:
                quotients[name] = mine.by_core / rate.by_core
        if quotients and query != _SOURCE:
            best.append(next(iter(quotients.values())))
            by_rows += [quotients["rows"]] if "rows" in quotients else []
        texts = [f"{quotients[name]:.2f}" if name in quotients else "" for name in formats]
        lines.append([query, *rate.shown(), *texts])
    headings = [system, "events", "events/s", "events/s and core", "start", "columns", "rows"]
    print(table(headings, lines), end="\n\n")
    if best:
        name = _RATIOS.get(system, f"nexmark_vs_{system.lower()}")
        figures.ratios[name] = geometric_mean(best)
        print(f"`{name}`: {figures.ratios[name]:.2f}, the geometric mean of {len(best)} queries", end="")
        if by_rows:
            figures.ratios[f"{name}, rows"] = geometric_mean(by_rows)
            print(f"; over rows {geometric_mean(by_rows):.2f}, of {len(by_rows)}", end="")
        print(".")
    print(settings_of(system), end="\n\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
