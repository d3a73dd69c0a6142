"""The most frequent words of each minute: windows over the results of windows.

    python examples/top_words.py --output top

The first windows count each word, spread over the subtasks. The timestamp of a count is the last moment of
its window. So all counts of a minute are in one window of `window_all`, which ranks them. It runs in one
subtask, and gets one record for each word and minute, however often the word was said.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

from penstock import (
    AggregateFunction,
    Checkpointing,
    FileSink,
    GeneratorSource,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.windows import TimeWindow, TumblingEventTimeWindows

SECOND = 1_000_000
MINUTE = TumblingEventTimeWindows(timedelta(minutes=1))

#: Words in a minute of event time.
PACE = 3_000

WORDS = [f"word-{number}" for number in range(200)]
_CHANCES = list(accumulate(1 / (rank + 5) for rank in range(len(WORDS))))

#: Time in microseconds at which a word was said, and the word.
Said = tuple[int, str]


class Counted(AggregateFunction[Said, int, int]):
    """The number of records."""

    def create_accumulator(self) -> int:
        """Begin at 0."""
        return 0

    def add(self, value: Said, accumulator: int) -> int:
        """Count one record."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """Return the number."""
        return accumulator


def said(i: int) -> Said:
    """The i-th word; the frequent words differ from minute to minute."""
    chance = random.Random(i)
    rank = chance.choices(range(len(WORDS)), cum_weights=_CHANCES)[0]
    return i * 60 * SECOND // PACE, WORDS[(rank + 7 * (i // PACE)) % len(WORDS)]


def with_word(word: str, window: TimeWindow, count: int) -> Iterable[tuple[str, int]]:
    """A word with its count in a minute."""
    yield word, count


def ranked(number: int, window: TimeWindow, counts: list[tuple[str, int]]) -> Iterable[dict[str, Any]]:
    """The most frequent words of a minute; equally frequent words are in alphabetical order."""
    best = sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:number]
    yield {"minute": window.start, "words": best}


def tops_of(output: Path) -> list[tuple[datetime, list[tuple[str, int]]]]:
    """The rows in the committed files, sorted by minute."""
    lines = [line for file in output.glob("part-*") for line in file.read_text(encoding="utf-8").splitlines()]
    rows = map(json.loads, lines)
    return sorted(
        (datetime.fromisoformat(row["minute"]), [(word, n) for word, n in row["words"]]) for row in rows
    )


def main() -> int:
    """Run the job and print the most frequent words of the last minutes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that results are committed to")
    parser.add_argument("--words", type=int, default=100_000, metavar="N")
    parser.add_argument("--top", type=int, default=3, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "top-words",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    strategy: WatermarkStrategy[Said] = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        itemgetter(0)
    )
    (
        env.from_source("words", GeneratorSource(said, count=options.words), watermarks=strategy)
        .key_by(itemgetter(1))
        .window(MINUTE)
        .aggregate("counts", Counted(), with_word)
        .window_all(MINUTE)
        .apply("top", partial(ranked, options.top))
        .sink("written", FileSink.json(output))
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"top_words: {error}", file=sys.stderr)
        return 1
    tops = tops_of(output)
    for minute, words in tops[-5:]:
        print(f"{minute:%H:%M}: {', '.join(f'{word} ({n})' for word, n in words)}")
    print(f"{len(tops)} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
