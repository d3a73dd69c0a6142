"""Orders that are not paid in time: a payment deletes the timer of its order.

Several orders of a customer have timers at the same time; each is named by its moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    KeyedProcessFunction,
    MapState,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)

SECOND = 1_000_000
LIMIT = 20

#: Second, customer, what, order.
Event = tuple[int, str, str, int]
Row = tuple[str, int, str]


class Deadlines(KeyedProcessFunction[str, Event, Row]):
    """Emits each order with `paid` or `cancelled`."""

    due = MapState(int, int)

    def process(self, value: Event, ctx: RuntimeContext) -> Iterator[Row]:
        second, customer, what, order = value
        if what == "order":
            self.due[order] = (second + LIMIT) * SECOND + order + 1
            ctx.timer_service.register_event_time_timer(self.due[order])
        elif order in self.due:
            due = self.due.pop(order)
            ctx.timer_service.delete_event_time_timer(due)
            # A watermark follows a batch of records: the timer may not have fired yet.
            yield customer, order, "paid" if second * SECOND < due else "cancelled"

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        order = at % SECOND - 1
        del self.due[order]
        yield ctx.current_key, order, "cancelled"


def make_input(random: Random) -> list[Event]:
    events = []
    for order in range(25):
        customer, second = random.choice("abc"), random.randrange(100)
        events.append((second, customer, "order", order))
        if random.random() < 0.8:
            events.append((second + random.randrange(2 * LIMIT), customer, "pay", order))
    return sorted(events, key=lambda event: event[0])


def build(env: StreamEnvironment, events: list[Event]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e: e[0] * SECOND)
    source = env.from_source("events", CollectionSource(events), watermarks=strategy, parallelism=1)
    return source.key_by(lambda event: event[1]).process("deadlines", Deadlines())


def expected(events: list[Event]) -> list[Row]:
    ordered = {order: (second, customer) for second, customer, what, order in events if what == "order"}
    paid = {order: second for second, _, what, order in events if what == "pay"}
    return [
        # The timer lies a little behind the end of its second.
        (customer, order, "paid" if paid.get(order, 10**6) - second <= LIMIT else "cancelled")
        for order, (second, customer) in ordered.items()
    ]


#: A drain cancels the orders that are open then.
whole = None
