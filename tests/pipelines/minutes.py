"""Tumbling windows: what each shop takes in every minute, with `reduce`.

Sales come out of order by up to twenty seconds, and the watermark waits for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000
LATEST = 20

#: Shop, second, cents.
Sale = tuple[str, int, int]
#: Shop, minute, cents.
Row = tuple[str, int, int]


def together(one: Sale, other: Sale) -> Sale:
    return one[0], min(one[1], other[1]), one[2] + other[2]


def make_input(random: Random) -> list[Sale]:
    return [
        (random.choice("abc"), 5 * n - random.randrange(LATEST) + LATEST, random.randrange(9))
        for n in range(60)
    ]


def build(env: StreamEnvironment, sales: list[Sale]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(LATEST)
    strategy = strategy.with_timestamp_assigner(lambda sale: sale[1] * SECOND)
    # Each split has a watermark of its own, so subtasks may read different parts of the day.
    timed = env.from_source("sales", CollectionSource(sales), watermarks=strategy)
    minutes = timed.key_by(lambda sale: sale[0]).window(TumblingEventTimeWindows(60)).reduce("sums", together)
    return minutes.map(lambda sale: (sale[0], sale[1] // 60, sale[2]))


def expected(sales: list[Sale]) -> list[Row]:
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for shop, second, cents in sales:
        sums[shop, second // 60] += cents
    return [(shop, minute, cents) for (shop, minute), cents in sums.items()]


def whole(rows: Iterable[Row]) -> list[Row]:
    """A drain fires open windows. Their later records are windows of their own, so the sums are the same."""
    return expected([(shop, 60 * minute, cents) for shop, minute, cents in rows])
