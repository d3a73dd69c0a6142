"""Runs a query of Nexmark: `python examples/nexmark q5 --events 1000000 --arrow`.

It prints the last five results and the number of all results; q10 writes its results to files.
"""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path

import nexmark_columns as columns
import nexmark_patterns as patterns
import nexmark_rows as rows
from nexmark_events import NexmarkConfig
from nexmark_source import NexmarkSource, add_events

from penstock import CollectSink, StreamEnvironment


def main() -> int:
    """Run the query that the command line names."""
    parser = argparse.ArgumentParser(prog="python examples/nexmark", description=__doc__)
    parser.add_argument("query", choices=[*rows.QUERIES, *patterns.QUERIES])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rate", type=float, help="events a second; by default as fast as possible")
    parser.add_argument("--event-rate", type=float, default=10_000, help="events a second of event time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="folder for the files of q10; required by q10")
    parser.add_argument("--arrow", action="store_true", help="run the version over Arrow columns")
    given = parser.parse_args()
    # Ray gives its workers the folder of a script, but not a folder that is run as a program.
    sys.argv[0] = str(Path(__file__).resolve())
    sys.path[0] = str(Path(__file__).resolve().parent)
    queries = (
        {**columns.QUERIES, **patterns.COLUMN_QUERIES}
        if given.arrow
        else {**rows.QUERIES, **patterns.QUERIES}
    )
    if given.query not in queries:
        parser.error(f"{given.query} has no version over columns; README.md says why")
    config = NexmarkConfig(seed=given.seed, event_rate=given.event_rate)
    source = NexmarkSource(config, given.events, given.rate, "arrow" if given.arrow else "rows")
    env = StreamEnvironment(f"nexmark-{given.query}", parallelism=given.parallelism)
    results_of_query = queries[given.query](add_events(env, source), config)
    if given.query == "q10":
        if given.folder is None:
            parser.error("q10 writes files: give --folder")
        results_of_query.sink("out", rows.bid_files(given.folder.absolute()))
        env.run()
        print(f"the bids of {given.events:,} events are in {given.folder}")
        return 0
    results = CollectSink()
    results_of_query.sink("out", results)
    env.run()
    found = results.rows()
    for row in islice(found, max(0, len(found) - 5), None):
        print(row)
    print(f"{len(found):,} results of {given.events:,} events")
    return 0


if __name__ == "__main__":
    sys.exit(main())
