"""Each split of a source has its own watermark: three days are read at the same time, each from its morning.

With one watermark for all records of a subtask, the first evening would close the windows of every other day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from penstock import DataStream, GeneratorSource, StreamEnvironment, WatermarkStrategy
from penstock.windows import TumblingEventTimeWindows

HOUR = 3_600_000_000
DAYS, READINGS = 3, 20

#: Day, hour, how many.
Row = tuple[int, int, int]


def reading(number: int) -> tuple[int, int]:
    """Splits of a generator are ranges of numbers; a split begins where a day does, or within it."""
    day, of_day = divmod(number, READINGS)
    return day, of_day // 3


def make_input(random: Random) -> int:
    return DAYS * READINGS - random.randrange(5)


def build(env: StreamEnvironment, count: int) -> DataStream[Row]:
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda r: (24 * r[0] + r[1]) * HOUR)
    days = env.from_source("days", GeneratorSource(reading, count=count), watermarks=strategy)
    hours = days.map(lambda r: (*r, 1)).key_by(lambda row: row[0]).window(TumblingEventTimeWindows(3600))
    return hours.reduce("count", lambda one, other: (*one[:2], one[2] + other[2]))


def expected(count: int) -> list[Row]:
    counts = Counter((number // READINGS, number % READINGS // 3) for number in range(count))
    return [(*hour, number) for hour, number in counts.items()]


def whole(rows: Iterable[Row]) -> list[Row]:
    """Windows that a drain has fired in pieces, put together."""
    counts: Counter[tuple[int, int]] = Counter()
    for day, hour, number in rows:
        counts[day, hour] += number
    return [(*hour, number) for hour, number in counts.items()]
