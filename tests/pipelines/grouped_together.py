"""Bids and asks of ten seconds: grouped together by item, and joined in windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TimeWindow, TumblingEventTimeWindows

SECOND = 1_000_000

#: Item, second and price.
Offer = tuple[str, int, int]
Input = tuple[list[Offer], list[Offer]]


def make_input(random: Random) -> Input:
    def offers(count: int) -> list[Offer]:
        return [(random.choice("ab"), 2 * n + random.randrange(4), random.randrange(9)) for n in range(count)]

    return offers(30), offers(20)


def counts(item: str, window: TimeWindow, bids: list[Offer], asks: list[Offer]) -> Iterator[Any]:
    yield item, window.start_timestamp // SECOND, len(bids), len(asks)


def build(env: StreamEnvironment, offers: Input) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(4)
    strategy = strategy.with_timestamp_assigner(lambda offer: offer[1] * SECOND)
    bids, asks = (
        env.from_collection(name, given, parallelism=1)
        .assign_timestamps_and_watermarks(strategy, parallelism=1)
        .key_by(lambda offer: offer[0])
        for name, given in zip(("bids", "asks"), offers, strict=True)
    )
    window = TumblingEventTimeWindows(10)
    deals = bids.join(
        asks,
        window=window,
        where=lambda bid, ask: bid[2] >= ask[2],
        select=lambda bid, ask: (bid[0], bid[2], ask[2]),
        id="deals",
    )
    return {"counts": bids.co_group(asks, window, counts, id="counts"), "deals": deals}


def expected(offers: Input) -> Mapping[str, list[Any]]:
    groups: dict[tuple[str, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, given in enumerate(offers):
        for item, second, price in given:
            groups[item, second // 10 * 10][side].append(price)
    return {
        "counts": [(item, start, len(bids), len(asks)) for (item, start), (bids, asks) in groups.items()],
        "deals": [
            (item, bid, ask)
            for (item, _), (bids, asks) in groups.items()
            for bid in bids
            for ask in asks
            if bid >= ask
        ],
    }


#: A drain fires windows in pieces.
whole = None
