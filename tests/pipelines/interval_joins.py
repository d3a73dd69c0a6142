"""Orders and payments joined by time, over rows, with a condition on both."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment, WatermarkStrategy

SECOND = 1_000_000
LOWER, UPPER = -2, 5

Row = dict[str, Any]
Input = tuple[list[Row], list[Row]]

HOWS = ("inner", "full", "semi")


def make_input(random: Random) -> Input:
    def rows(count: int, name: str) -> list[Row]:
        return [
            {
                "customer": random.choice(["ann", "bob", "cid", None]),
                name: n,
                "at": (2 * n + random.randrange(4)) * SECOND,
            }
            for n in range(count)
        ]

    return rows(25, "order"), rows(25, "payment")


def timed(env: StreamEnvironment, name: str, rows: list[Row]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(4)
    strategy = strategy.with_timestamp_assigner(lambda row: row["at"])
    collected = env.from_collection(name, rows, parallelism=1)
    return collected.assign_timestamps_and_watermarks(strategy, parallelism=1)


def fits(order: Row, payment: Row) -> bool:
    return bool((order["order"] + payment["payment"]) % 3)


def numbers(row: Row) -> tuple[Any, Any, Any]:
    return row["customer"], row.get("order"), row.get("payment")


def build(env: StreamEnvironment, records: Input) -> Mapping[str, DataStream[Any]]:
    orders = timed(env, "orders", records[0]).key_by("customer")
    payments = timed(env, "payments", records[1]).key_by("customer")
    return {
        how: orders.join(payments, within=(LOWER, UPPER), how=how, where=fits, id=f"{how}-join").map(numbers)
        for how in HOWS
    }


def expected(records: Input) -> Mapping[str, list[Any]]:
    orders, payments = records
    pairs = [
        (order, payment)
        for order in orders
        for payment in payments
        if order["customer"] is not None
        and order["customer"] == payment["customer"]
        and LOWER <= (payment["at"] - order["at"]) / SECOND <= UPPER
        and fits(order, payment)
    ]
    inner = [(order["customer"], order["order"], payment["payment"]) for order, payment in pairs]
    paid, used = {order["order"] for order, _ in pairs}, {payment["payment"] for _, payment in pairs}
    left = [(row["customer"], row["order"], None) for row in orders if row["order"] not in paid]
    right = [(row["customer"], None, row["payment"]) for row in payments if row["payment"] not in used]
    return {
        "inner": inner,
        "full": inner + left + right,
        "semi": [(row["customer"], row["order"], None) for row in orders if row["order"] in paid],
    }


#: A drain says that no partner comes any more, and then the job continues.
whole = None
