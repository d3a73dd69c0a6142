"""Sliding windows: the mean of the last thirty seconds, every ten seconds, with an `AggregateFunction`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

from penstock import AggregateFunction, CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import SlidingEventTimeWindows

SECOND = 1_000_000
SIZE, SLIDE, BOUND = 30, 10, 5

#: Sensor, second, value.
Reading = tuple[int, int, int]
#: Sensor, how many, their sum.
Row = tuple[int, int, int]


class Total(AggregateFunction[Reading, list[int], Row]):
    """The accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0, 0]

    def add(self, value: Reading, accumulator: list[int]) -> list[int]:
        accumulator[:] = value[0], accumulator[1] + 1, accumulator[2] + value[2]
        return accumulator

    def get_result(self, accumulator: list[int]) -> Row:
        return accumulator[0], accumulator[1], accumulator[2]


def make_input(random: Random) -> list[Reading]:
    return [(random.randrange(3), 2 * n + random.randrange(BOUND), random.randrange(50)) for n in range(50)]


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(BOUND)
    strategy = strategy.with_timestamp_assigner(lambda reading: reading[1] * SECOND)
    timed = env.from_source("readings", CollectionSource(readings), watermarks=strategy)
    windows = timed.key_by(lambda reading: reading[0]).window(SlidingEventTimeWindows(SIZE, SLIDE))
    return windows.aggregate("totals", Total())


def expected(readings: list[Reading]) -> list[Row]:
    windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for sensor, second, value in readings:
        for start in range(second // SLIDE * SLIDE, second - SIZE, -SLIDE):
            windows[sensor, start].append(value)
    return [(sensor, len(values), sum(values)) for (sensor, _), values in windows.items()]


def whole(rows: Iterable[Row]) -> list[Row]:
    """In pieces or not: each sensor has as many readings in windows, and as large ones."""
    rows = list(rows)
    return [
        (
            sensor,
            sum(row[1] for row in rows if row[0] == sensor),
            sum(row[2] for row in rows if row[0] == sensor),
        )
        for sensor in sorted({row[0] for row in rows})
    ]
