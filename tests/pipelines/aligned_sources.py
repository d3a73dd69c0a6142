"""A fast source waits for a slow one, so that little waits in windows: `with_alignment`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000

#: Second and value.
Reading = tuple[int, int]
Input = tuple[list[Reading], list[Reading]]


def add(one: Reading, other: Reading) -> Reading:
    return one[0] // 10 * 10, one[1] + other[1]


def make_input(random: Random) -> Input:
    sparse = [(4 * n, random.randrange(1, 100)) for n in range(20)]
    dense = [(2 * n, random.randrange(1, 100)) for n in range(40)]
    return sparse, dense


def build(env: StreamEnvironment, readings: Input) -> DataStream[Reading]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r: r[0] * SECOND)
    together = strategy.with_alignment("readings", max_drift=8, interval=0.01)
    sparse = env.from_source("sparse", CollectionSource(readings[0]), watermarks=together)
    dense = env.from_source("dense", CollectionSource(readings[1]), watermarks=together, parallelism=1)
    windows = sparse.union(dense).key_by(lambda reading: reading[1] % 2).window(TumblingEventTimeWindows(10))
    return windows.reduce("sums", add).map(lambda reading: (reading[0] // 10, reading[1]))


def expected(readings: Input) -> list[Reading]:
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for second, value in (*readings[0], *readings[1]):
        sums[second // 10, value % 2] += value
    return [(window, value) for (window, _), value in sums.items()]


def whole(rows: Iterable[Reading]) -> list[Reading]:
    """Windows that a drain has fired in pieces, put together over both keys."""
    sums: dict[int, int] = defaultdict(int)
    for window, value in rows:
        sums[window] += value
    return list(sums.items())
