"""Calls of a service: in order, in any order, in batches, and with tries that fail.

The answer of an item takes longer or shorter, so answers overtake one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from penstock import DataStream, Retry, StreamEnvironment, async_call

#: Number of the item and its name.
Item = tuple[int, str]
#: Number, name and price.
Row = tuple[int, str, int]


def price_of(item: Item) -> int:
    return len(item[1]) * 100 + item[0] % 7


async def asked(item: Item) -> Row:
    await asyncio.sleep(item[0] * 7 % 5 / 1000)
    return *item, price_of(item)


async def asked_together(items: list[Item]) -> list[Row]:
    await asyncio.sleep(len(items) / 1000)
    return [(*item, price_of(item)) for item in items]


async def asked_again(item: Item) -> Row:
    if async_call().attempt <= item[0] % 3:
        raise ConnectionError(item)
    await asyncio.sleep(0.001)
    return *item, price_of(item)


async def never_answered(item: Item) -> Row:
    await asyncio.sleep(3600)
    return *item, -1


def guessed(item: Item) -> Row:
    return *item, price_of(item)


def make_input(random: Random) -> list[Item]:
    return [(number, random.choice(("tea", "rice", "jam", "bread"))) for number in range(40)]


def build(env: StreamEnvironment, items: list[Item]) -> Mapping[str, DataStream[Any]]:
    source = env.from_collection("items", items, parallelism=1)
    spread = source.rebalance()
    retry = Retry(4, delay=0.001, on=(ConnectionError,))
    return {
        "ordered": source.map_async(asked, id="ordered", capacity=4),
        "unordered": spread.map_async(asked, id="unordered", capacity=3, ordered=False),
        "together": spread.map_async(asked_together, id="together", capacity=2, batch=5, linger=0.002),
        "again": spread.map_async(asked_again, id="again", capacity=5, retry=retry),
        "guessed": source.map_async(never_answered, id="guessed", timeout=0.004, on_timeout=guessed),
    }


def expected(items: list[Item]) -> Mapping[str, list[Row]]:
    rows = [(*item, price_of(item)) for item in items]
    return dict.fromkeys(("ordered", "unordered", "together", "again", "guessed"), rows)
