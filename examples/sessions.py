"""Session windows: the visits of each user, and a side output for clicks that come too late.

    python examples/sessions.py --output visits

A visit ends when its user has not clicked for half a minute of event time. The clicks come a little out of
order, and the watermarks allow for that. After four hours, one click in five hundred was made offline and is
sent two hours later. By then the watermark has passed the end of its session, so the click goes to the side
output. Each output has its own files, and each click is in exactly one output, once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock import (
    AggregateFunction,
    Checkpointing,
    FileSink,
    GeneratorSource,
    OutputTag,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.windows import EventTimeSessionWindows, TimeWindow

SECOND = 1_000_000

#: Seconds without a click after which a visit is over.
GAP = 30

#: Maximum out-of-orderness of the clicks, in seconds.
DELAY = 5

#: Seconds by which an offline click is late.
OFFLINE = 7200

PAGES = ("home", "search", "product", "cart", "pay")
TOO_LATE = OutputTag["Click"]("too-late")


class Click(NamedTuple):
    """A page that a user opened."""

    user: str
    second: int
    page: str


class Visit(AggregateFunction[Click, dict[str, int], dict[str, int]]):
    """Counts how often each page was opened; these counts are all the state of an open visit."""

    def create_accumulator(self) -> dict[str, int]:
        """Start without any page."""
        return {}

    def add(self, value: Click, accumulator: dict[str, int]) -> dict[str, int]:
        """Count the page of one click."""
        accumulator[value.page] = accumulator.get(value.page, 0) + 1
        return accumulator

    def get_result(self, accumulator: dict[str, int]) -> dict[str, int]:
        """Return the counts."""
        return accumulator

    def merge(self, first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
        """Merge two visits that a click between them has joined."""
        for page, number in second.items():
            first[page] = first.get(page, 0) + number
        return first


def visit(user: str, window: TimeWindow, pages: dict[str, int]) -> Iterable[dict[str, Any]]:
    """The row of a visit; its window ends one gap after the last click."""
    end = window.end - timedelta(seconds=GAP)
    yield {"user": user, "start": window.start, "end": end, "clicks": sum(pages.values()), "pages": pages}


def click(i: int) -> Click:
    """The i-th click: one per second, from eight users who change every five minutes."""
    chance = random.Random(i)
    delay = OFFLINE if is_offline(i) else chance.randrange(DELAY)
    second = max(0, i - delay)
    user = i // 300 % 5 * 8 + chance.randrange(8)
    return Click(f"user-{user}", second, chance.choice(PAGES))


def is_offline(i: int) -> bool:
    """Whether the i-th click is sent two hours later; none is in the first four hours."""
    return i > 2 * OFFLINE and i % 500 == 0


def rows_of(folder: Path) -> list[Any]:
    """The rows in the committed files of a folder."""
    files = folder.glob("part-*")
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Run the job, and print the numbers of visits and late clicks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that visits are committed to")
    parser.add_argument("--clicks", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "sessions",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output / "checkpoints")),
    )
    strategy: WatermarkStrategy[Click] = WatermarkStrategy.for_bounded_out_of_orderness(
        timedelta(seconds=DELAY)
    ).with_timestamp_assigner(lambda made: made.second * SECOND)
    clicks = env.from_source(
        "clicks", GeneratorSource(click, count=options.clicks), watermarks=strategy, parallelism=1
    )
    visits = (
        clicks.key_by(lambda made: made.user)
        .window(EventTimeSessionWindows(timedelta(seconds=GAP)))
        .side_output_late_data(TOO_LATE)
        .aggregate("visits", Visit(), visit)
    )
    visits.sink("written-visits", FileSink.json(output / "visits"))
    late = visits.side_output(TOO_LATE).map(lambda made: made._asdict(), id="late-clicks")
    late.sink("written-late-clicks", FileSink.json(output / "late"))
    try:
        env.run()
    except PenstockError as error:
        print(f"sessions: {error}", file=sys.stderr)
        return 1
    written = rows_of(output / "visits")
    print(f"{len(written)} visits with {sum(row['clicks'] for row in written)} clicks")
    print(f"{len(rows_of(output / 'late'))} clicks came too late")
    return 0


if __name__ == "__main__":
    sys.exit(main())
