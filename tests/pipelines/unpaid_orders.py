"""A pattern in records out of order: an order and its payment in twenty seconds, or an unpaid order by time.

The payment's condition sees the order of the partial match. A customer has several orders at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from penstock import CollectionSource, DataStream, OutputTag, StreamEnvironment, WatermarkStrategy
from penstock.patterns import Pattern

SECOND = 1_000_000
LIMIT = 20
DELAY = 8

#: Second, customer, what, order.
Event = tuple[int, str, str, int]
Match = dict[str, list[Event]]

UNPAID: OutputTag[Match] = OutputTag("unpaid")


def is_order(event: Event) -> bool:
    return event[2] == "order"


def pays(event: Event, match: Match) -> bool:
    return event[2] == "pay" and event[3] == match["order"][0][3]


def paid(match: Match) -> tuple[str, int, int]:
    (order,), (payment,) = match["order"], match["payment"]
    return order[1], order[3], payment[0] - order[0]


def unpaid(match: Match) -> tuple[str, int]:
    (order,) = match["order"]
    return order[1], order[3]


def make_input(random: Random) -> list[Event]:
    events = []
    for order in range(30):
        customer, second = random.choice("abc"), random.randrange(100)
        events.append((second, customer, "order", order))
        if random.random() < 0.8:
            events.append((second + random.randrange(1, 2 * LIMIT), customer, "pay", order))
    # At most `DELAY` behind an earlier event, so that none is late.
    return sorted(events, key=lambda event: event[0] + random.randrange(DELAY))


def build(env: StreamEnvironment, events: list[Event]) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(DELAY)
    strategy = strategy.with_timestamp_assigner(lambda event: event[0] * SECOND)
    source = env.from_source("events", CollectionSource(events), watermarks=strategy, parallelism=1)
    pattern: Pattern[Event] = Pattern.begin("order", where=is_order)
    pattern = pattern.followed_by("payment", where=pays).within(LIMIT)
    found = source.key_by(lambda event: event[1]).pattern(pattern).select("orders", paid, timed_out=UNPAID)
    return {"paid": found, "unpaid": found.side_output(UNPAID).map(unpaid)}


def expected(events: list[Event]) -> Mapping[str, list[Any]]:
    payments = {order: second for second, _, what, order in events if what == "pay"}
    rows: dict[str, list[Any]] = {"paid": [], "unpaid": []}
    for second, customer, what, order in events:
        took = payments.get(order, second + LIMIT) - second
        if what == "order" and took < LIMIT:
            rows["paid"].append((customer, order, took))
        elif what == "order":
            rows["unpaid"].append((customer, order))
    return rows


#: A drain ends the time of the orders that are open then.
whole = None
