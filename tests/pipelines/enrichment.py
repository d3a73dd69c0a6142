"""Orders get the name of their city from a table, whole batches at a time."""

from __future__ import annotations

from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment

CITIES = {10115: "Berlin", 20095: "Hamburg", 80331: "Munich"}


def with_city(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One look-up for a whole batch; how many orders come together does not matter."""
    names = [CITIES.get(order["zip"], "unknown") for order in orders]
    return [{**order, "city": name} for order, name in zip(orders, names, strict=True)]


def make_input(random: Random) -> list[dict[str, Any]]:
    return [{"order": number, "zip": random.choice((*CITIES, 99999))} for number in range(50)]


def build(env: StreamEnvironment, orders: list[dict[str, Any]]) -> DataStream[dict[str, Any]]:
    return (
        env.from_collection("orders", orders).map_batches(with_city).filter(lambda o: o["city"] != "unknown")
    )


def expected(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**order, "city": CITIES[order["zip"]]} for order in orders if order["zip"] in CITIES]
