"""Orders get the price of their item from tables, from functions, and from coroutine functions that wait.

The answer for an item takes longer or shorter, so answers overtake one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from penstock import DataStream, Retry, StreamEnvironment, async_call

Row = dict[str, Any]

PRICES = {"tea": {"price": 3}, "rice": {"price": 2}, "jam": {"price": 5}}


def price_of(item: str) -> Row | None:
    return PRICES.get(item)


async def asked(item: str) -> Row | None:
    await asyncio.sleep(len(item) / 1000)
    return PRICES.get(item)


async def asked_again(item: str) -> Row | None:
    if async_call().attempt <= len(item) % 3:
        raise ConnectionError(item)
    return PRICES.get(item)


def numbers(row: Row) -> tuple[Any, ...]:
    return row["n"], row["item"], row.get("price")


def make_input(random: Random) -> list[Row]:
    return [{"n": n, "item": random.choice((*PRICES, "bread", None))} for n in range(40)]


def build(env: StreamEnvironment, orders: list[Row]) -> Mapping[str, DataStream[Any]]:
    source = env.from_collection("orders", orders, parallelism=1)
    spread = source.rebalance()
    retry = Retry(4, delay=0.001, on=(ConnectionError,))
    found = {
        "table": spread.lookup(PRICES, on="item"),
        "function": spread.lookup(price_of, on="item", cache=2, id="function-lookup"),
        "ordered": source.lookup(asked, on="item", cache=2, capacity=4, id="ordered-lookup"),
        "unordered": spread.lookup(
            asked, on="item", ttl=0.004, capacity=3, ordered=False, how="inner", id="unordered-lookup"
        ),
        "again": spread.lookup(asked_again, on="item", cache=0, retry=retry, id="again-lookup"),
    }
    return {name: stream.map(numbers) for name, stream in found.items()}


def expected(orders: list[Row]) -> Mapping[str, list[Any]]:
    rows = [numbers({**order, **PRICES.get(order["item"], {})}) for order in orders]
    inner = [row for row in rows if row[2] is not None]
    return {**dict.fromkeys(("table", "function", "ordered", "again"), rows), "unordered": inner}
