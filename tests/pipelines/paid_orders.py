"""Orders connected with their payments by key: an order is paid in time, or a timer cancels it.

An order and its payment come from two sources, so either may arrive first. The first one waits in state, and
a timer ends its wait. The results depend on event time alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
    WatermarkStrategy,
)
from penstock.connected import KeyedCoProcessFunction

SECOND = 1_000_000
LIMIT = 20

#: Second and order.
Event = tuple[int, int]
Row = tuple[int, str]


class PaidInTime(KeyedCoProcessFunction[int, Event, Event, Row]):
    """Emits each order with what became of it, and each payment that came too late or has no order."""

    ordered = ValueState(int)
    paid = ValueState(int)
    is_cancelled = ValueState(bool, default=False)

    def process_element1(self, value: Event, ctx: RuntimeContext) -> Iterator[Row]:
        paid = self.paid.value()
        if paid is None:
            self.ordered.update(value[0])
            ctx.timer_service.register_event_time_timer((value[0] + LIMIT) * SECOND)
        else:
            ctx.timer_service.delete_event_time_timer(paid * SECOND)
            self.paid.clear()
            yield from self._both(value[0], paid, ctx)

    def process_element2(self, value: Event, ctx: RuntimeContext) -> Iterator[Row]:
        ordered = self.ordered.value()
        if self.is_cancelled.value():
            yield ctx.current_key, "paid too late"
        elif ordered is None:
            self.paid.update(value[0])
            ctx.timer_service.register_event_time_timer(value[0] * SECOND)
        else:
            ctx.timer_service.delete_event_time_timer((ordered + LIMIT) * SECOND)
            self.ordered.clear()
            yield from self._both(ordered, value[0], ctx)

    def _both(self, ordered: int, paid: int, ctx: RuntimeContext) -> Iterator[Row]:
        if paid - ordered <= LIMIT:
            yield ctx.current_key, "paid"
        else:
            yield ctx.current_key, "cancelled"
            yield ctx.current_key, "paid too late"

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        if self.paid.value() is None:
            self.ordered.clear()
            self.is_cancelled.update(True)
            yield ctx.current_key, "cancelled"
        else:
            self.paid.clear()
            yield ctx.current_key, "nothing to pay"


def make_input(random: Random) -> tuple[list[Event], list[Event]]:
    orders, payments = [], []
    for order in range(30):
        second, draw = random.randrange(100), random.random()
        if draw < 0.9:
            orders.append((second, order))
        if draw > 0.2:
            payments.append((second + random.randrange(2 * LIMIT), order))
    return sorted(orders), sorted(payments)


def build(env: StreamEnvironment, events: tuple[list[Event], list[Event]]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e: e[0] * SECOND)
    orders, payments = (
        env.from_source(name, CollectionSource(given), watermarks=strategy, parallelism=1)
        for name, given in zip(("orders", "payments"), events, strict=True)
    )
    by_order = orders.key_by(lambda event: event[1])
    return by_order.connect(payments.key_by(lambda event: event[1])).process("paid-in-time", PaidInTime())


def expected(events: tuple[list[Event], list[Event]]) -> list[Row]:
    orders, payments = ({order: second for second, order in given} for given in events)
    rows = []
    for order in orders.keys() | payments.keys():
        if order not in orders:
            rows.append((order, "nothing to pay"))
        elif order in payments and payments[order] - orders[order] <= LIMIT:
            rows.append((order, "paid"))
        else:
            rows.append((order, "cancelled"))
            rows += [(order, "paid too late")] if order in payments else []
    return sorted(rows)


#: A drain fires all timers early.
whole = None
