"""Two sources meet in a union: web and shop orders, of which only the paid ones count."""

from __future__ import annotations

from random import Random

from penstock import DataStream, StreamEnvironment

#: Customer, cents, and whether it is paid.
Order = tuple[str, int, bool]
Input = tuple[list[Order], list[Order]]


def make_input(random: Random) -> Input:
    def orders(count: int) -> list[Order]:
        return [(random.choice("abcd"), random.randrange(100), random.random() < 0.7) for _ in range(count)]

    return orders(30), orders(15)


def build(env: StreamEnvironment, orders: Input) -> DataStream[tuple[str, int]]:
    web = env.from_collection("web", orders[0]).filter(lambda order: order[2])
    shop = env.from_collection("shop", orders[1], parallelism=1).filter(lambda order: order[2])
    totals = web.union(shop).map(lambda order: order[:2]).key_by(lambda pair: pair[0])
    # Intermediate sums depend on the order in which orders meet; the number of orders and the set do not.
    return totals.reduce("newest", lambda old, new: new)


def expected(orders: Input) -> list[tuple[str, int]]:
    return [(customer, cents) for customer, cents, is_paid in (*orders[0], *orders[1]) if is_paid]
