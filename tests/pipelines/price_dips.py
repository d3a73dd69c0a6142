"""A pattern with a greedy loop, conditions on the match and a skip strategy: prices that fall and then rise.

A price belongs to one dip at most. After a dip the search continues behind it.
"""

from __future__ import annotations

from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.patterns import AfterMatchSkipStrategy, Pattern

SECOND = 1_000_000

#: Second, stock, price.
Tick = tuple[int, str, int]
Match = dict[str, list[Tick]]
#: Stock, first price, lowest price, last price, number of falls.
Dip = tuple[str, int, int, int, int]


def falls(tick: Tick, match: Match) -> bool:
    return tick[2] < [*match["start"], *match["down"]][-1][2]


def rises(tick: Tick, match: Match) -> bool:
    return tick[2] > match["down"][-1][2]


def dip_of(match: Match) -> Dip:
    (start,), down, (up,) = match["start"], match["down"], match["up"]
    return start[1], start[2], down[-1][2], up[2], len(down)


def make_input(random: Random) -> list[Tick]:
    ticks = [(second, random.choice("xyz"), random.randrange(6)) for second in range(90)]
    return sorted(ticks, key=lambda tick: tick[0] + random.randrange(6))


def build(env: StreamEnvironment, ticks: list[Tick]) -> DataStream[Dip]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(6)
    strategy = strategy.with_timestamp_assigner(lambda tick: tick[0] * SECOND)
    source = env.from_source("ticks", CollectionSource(ticks), watermarks=strategy, parallelism=1)
    pattern: Pattern[Tick] = Pattern.begin("start", skip=AfterMatchSkipStrategy.skip_past_last_event())
    pattern = pattern.next("down", where=falls).one_or_more().consecutive().greedy()
    pattern = pattern.next("up", where=rises)
    return source.key_by(lambda tick: tick[1]).pattern(pattern).select("dips", dip_of)


def expected(ticks: list[Tick]) -> list[Dip]:
    dips = []
    for stock in "xyz":
        prices = [price for _, other, price in sorted(ticks) if other == stock]
        at = 0
        while at < len(prices):
            low = at
            while low + 1 < len(prices) and prices[low + 1] < prices[low]:
                low += 1
            if low > at and low + 1 < len(prices) and prices[low + 1] > prices[low]:
                dips.append((stock, prices[at], prices[low], prices[low + 1], low - at))
                at = low + 2
            else:
                at += 1
    return dips


#: A drain releases all records, and earlier ones come after it.
whole = None
