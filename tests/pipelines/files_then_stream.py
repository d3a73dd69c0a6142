"""Readings from files, then from a stream that begins where the files end; windows count them by event time.

The subtasks take one file after the other. The number behind the last file's readings is handed over.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from penstock import (
    DataStream,
    FileSource,
    GeneratorSource,
    HybridSource,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.connectors import EndOfHistory
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000

Input = tuple[list[list[int]], int]
#: Sensor, window, how many.
Row = tuple[int, int, int]


def reading(number: int) -> dict[str, int]:
    return {"second": number, "sensor": number % 3}


def end_of_files(end: EndOfHistory) -> int:
    """The number behind the last reading of the files, which their names tell."""
    return max(int(Path(split.path).stem) for split in end.splits)


def make_input(random: Random) -> Input:
    ends = [0, *sorted(random.sample(range(1, 60), 5))]
    files = [list(range(first, end)) for first, end in pairwise(ends)]
    return files, 60 + random.randrange(20)


def build(env: StreamEnvironment, given: Input, folder: Path) -> DataStream[Row]:
    files, count = given
    for numbers in files:
        lines = "".join(f"{json.dumps(reading(number))}\n" for number in numbers)
        (folder / f"{numbers[-1] + 1:03}.jsonl").write_text(lines)

    def live(first: int) -> Any:
        return GeneratorSource(lambda n: reading(first + n), count=count - first)

    history = FileSource.json(str(folder / "*.jsonl"))
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda row: row["second"] * SECOND)
    readings = env.from_source("readings", HybridSource(history, live, end_of_files), watermarks=strategy)
    ones = readings.map(lambda row: (row["sensor"], row["second"] // 10, 1))
    windows = ones.key_by(lambda row: row[0]).window(TumblingEventTimeWindows(10))
    return windows.reduce("count", lambda one, other: (one[0], one[1], one[2] + other[2]))


def expected(given: Input) -> list[Row]:
    counts = Counter((number % 3, number // 10) for number in range(given[1]))
    return [(sensor, window, count) for (sensor, window), count in counts.items()]


def whole(rows: Iterable[Row]) -> list[Row]:
    """Windows that a drain has fired in pieces, put together."""
    counts: Counter[tuple[int, int]] = Counter()
    for sensor, window, count in rows:
        counts[sensor, window] += count
    return [(sensor, window, count) for (sensor, window), count in counts.items()]
