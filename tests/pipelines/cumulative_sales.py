"""Windows that grow: the sales of an hour so far, every quarter of it, on rows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import CumulativeEventTimeWindows, TimeWindow

SECOND = 1_000_000
HOUR, QUARTER = 3600, 900

#: Second, shop, and price.
Sale = tuple[int, str, int]
#: Shop, beginning and end of the window in seconds, and the prices in it.
Row = tuple[str, int, int, list[int]]


def sold(shop: str, window: TimeWindow, sales: list[Sale]) -> Iterator[Row]:
    start, end = window.start_timestamp // SECOND, window.end_timestamp // SECOND
    yield shop, start, end, sorted(price for _, _, price in sales)


def make_input(random: Random) -> list[Sale]:
    """In order up to ten minutes."""
    return [
        (max(0, 150 * n - random.randrange(600)), random.choice("ab"), random.randrange(50))
        for n in range(60)
    ]


def build(env: StreamEnvironment, sales: list[Sale]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(600)
    strategy = strategy.with_timestamp_assigner(lambda sale: sale[0] * SECOND)
    timed = env.from_source("sales", CollectionSource(sales), watermarks=strategy, parallelism=1)
    windows = CumulativeEventTimeWindows(max_size=HOUR, step=QUARTER)
    return timed.key_by(lambda sale: sale[1]).window(windows).apply("sold", sold)


def expected(sales: list[Sale]) -> list[Row]:
    last = max(second for second, _, _ in sales) + HOUR
    found = [
        (shop, hour, end, sorted(p for second, name, p in sales if name == shop and hour <= second < end))
        for shop in "ab"
        for hour in range(0, last, HOUR)
        for end in range(hour + QUARTER, hour + HOUR + 1, QUARTER)
    ]
    return [row for row in found if row[3]]


#: A drain emits a part of an hour.
whole = None
