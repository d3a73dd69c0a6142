"""Keys of two columns: the cheapest price of each product in each country, with `reduce` over dicts."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment

Price = dict[str, Any]


def cheaper(one: Price, other: Price) -> Price:
    return other if other["cents"] < one["cents"] else one


def make_input(random: Random) -> list[Price]:
    def price() -> Price:
        country = random.choice(("de", "fr", None))
        return {"product": random.randrange(3), "country": country, "cents": random.randrange(1, 100)}

    return [price() for _ in range(60)]


def build(env: StreamEnvironment, prices: list[Price]) -> DataStream[Price]:
    keyed = env.from_collection("prices", prices, parallelism=1).key_by(["product", "country"])
    return keyed.reduce("cheapest", cheaper)


def expected(prices: list[Price]) -> list[Price]:
    lowest: dict[tuple[int, str | None], Price] = {}
    rows = []
    for price in prices:
        key = price["product"], price["country"]
        if key not in lowest or price["cents"] < lowest[key]["cents"]:
            lowest[key] = price
        rows.append(lowest[key])
    return rows
