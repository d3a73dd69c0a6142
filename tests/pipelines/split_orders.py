"""Orders are split by functions of a record; what they leave is split by expressions of columns."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow.compute as pc

from penstock import DataStream, StreamEnvironment

Order = dict[str, Any]


def is_large(order: Order) -> bool:
    return bool(order["amount"] > 80)


def is_abroad(order: Order) -> bool:
    return bool(order["country"] != "CH")


def order_id(order: Order) -> int:
    number: int = order["id"]
    return number


def make_input(random: Random) -> list[Order]:
    return [
        {"id": number, "amount": random.randrange(100), "country": random.choice(("CH", "FR", None))}
        for number in range(60)
    ]


def build(env: StreamEnvironment, orders: list[Order]) -> Mapping[str, DataStream[object]]:
    parts = env.from_collection("orders", orders).split({"large": is_large, "abroad": is_abroad})
    home = parts["rest"].split({"small": pc.field("amount") < 20, "medium": pc.field("amount") < 50})
    return {
        "large": parts["large"].key_by(lambda order: order["country"]).reduce("last", later).map(order_id),
        "abroad": parts["abroad"].map(order_id),
        "small": home["small"].map(order_id),
        "medium": home["medium"].map(order_id),
        "others": home["rest"].map(order_id),
    }


def later(_: Order, order: Order) -> Order:
    return order


def expected(orders: list[Order]) -> Mapping[str, list[object]]:
    parts: dict[str, list[object]] = {"large": [], "abroad": [], "small": [], "medium": [], "others": []}
    for order in orders:
        amount = order["amount"]
        part = "large" if amount > 80 else "abroad" if order["country"] != "CH" else None
        part = part or ("small" if amount < 20 else "medium" if amount < 50 else "others")
        parts[part].append(order["id"])
    return parts
