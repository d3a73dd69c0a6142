"""State as tables: start a job from given totals, and read its totals from a savepoint.

    python examples/state_frames.py --folder demo

A batch program has counted yesterday's visits. The job starts with these counts as its state and continues
with today's. Then it is stopped with a savepoint, whose state is read as a table and checked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import Checkpointing, DiscardSink, GeneratorSource, PenstockError, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.state import read_state, write_state

PAGES = 50


def page_of(visit: int) -> str:
    """The page of the `visit`-th visit of a day."""
    return f"/page/{visit * visit % PAGES}"


def as_count(visit: int) -> tuple[str, int]:
    """A visit as a count of one."""
    return page_of(visit), 1


def page(count: tuple[str, int]) -> str:
    """Return the page of a count, which is its key."""
    return count[0]


def add(total: tuple[str, int], more: tuple[str, int]) -> tuple[str, int]:
    """Add two counts of a page."""
    return total[0], total[1] + more[1]


def yesterday(visits: int) -> pa.Table:
    """The result of a batch program: a row for each page, with keys and values as in the job."""
    counts = Counter(map(page_of, range(visits)))
    values = [{"_1": page, "_2": count} for page, count in counts.items()]  # a tuple is a struct _1, _2
    return pa.table({"key": list(counts), "value": values})


def today(folder: Path, visits: int) -> StreamEnvironment:
    """Build the job, which counts visits by page and never ends."""
    env = StreamEnvironment(
        "visits", parallelism=2, checkpointing=Checkpointing(every=0.5, storage=str(folder / "checkpoints"))
    )
    source: Any = GeneratorSource(as_count, rate=visits)
    env.from_source("visits", source, parallelism=1).key_by(page).reduce("total", add).sink(
        "nowhere", DiscardSink()
    )
    return env


def run(folder: Path, visits: int) -> int:
    """Start the job from a savepoint, stop it, and check its state."""
    start = write_state(yesterday(visits), folder / "start", "total", parallelism=2)
    job = today(folder, visits).submit(restore_from=start)
    assert isinstance(job, RayJobHandle)
    deadline = time.monotonic() + 60
    while job.statistics().completed_checkpoints < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    stopped = job.stop(folder / "stopped")

    totals = {row["key"]: row["value"]["_2"] for row in read_state(stopped, "total").to_pylist()}
    (position,) = read_state(stopped, "visits", "splits")["value"].to_pylist()
    expected = Counter(map(page_of, range(visits))) + Counter(map(page_of, range(position["next"])))
    print(f"{visits} visits of yesterday and {position['next']} of today in {len(totals)} totals")
    if totals != dict(expected):
        print("state_frames: the totals are wrong", file=sys.stderr)
        return 1
    print("every visit was counted once")
    return 0


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", required=True, metavar="DIR", help="a new folder for all files")
    parser.add_argument(
        "--visits", type=int, default=10_000, metavar="N", help="visits yesterday, and visits a second today"
    )
    options = parser.parse_args()
    try:
        return run(Path(options.folder).resolve(), options.visits)
    except PenstockError as error:
        print(f"state_frames: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
