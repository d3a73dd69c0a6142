"""A trigger and an evictor on a global window: the last orders of customers who have spent a hundred.

The trigger adds up what was spent, and emits when it is enough. The evictor keeps the last five orders before
the function sees them, and only those of ten or more behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from penstock import DataStream, StreamEnvironment
from penstock.windows import (
    Evictor,
    GlobalWindows,
    TimestampedValue,
    TimeWindow,
    Trigger,
    TriggerContext,
    TriggerResult,
)

ENOUGH, MOST, DEAR = 100, 5, 10

#: Customer and price.
Order = tuple[str, int]
#: Customer and prices, in the order in which they came.
Row = tuple[str, list[int]]


class AtEnough(Trigger[Order]):
    """Emits whenever another hundred was spent."""

    def on_element(
        self, element: Order, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        spent = ctx.state("spent", 0)
        spent.update(spent.value() + element[1])
        if spent.value() < ENOUGH:
            return TriggerResult.CONTINUE
        spent.clear()
        return TriggerResult.FIRE


class LastAndDear(Evictor[Order]):
    """Takes out all but the last orders before the function, and the cheap ones behind it."""

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        return elements[-MOST:]

    def evict_after(self, elements: list[TimestampedValue], window: TimeWindow) -> Sequence[TimestampedValue]:
        return [element for element in elements if element.value[1] >= DEAR]


def told(customer: str, window: TimeWindow, orders: list[Order]) -> Iterator[Row]:
    yield customer, [price for _, price in orders]


def make_input(random: Random) -> list[Order]:
    return [(random.choice("abc"), random.choice((3, 8, 12, 30, 45))) for _ in range(70)]


def build(env: StreamEnvironment, orders: list[Order]) -> DataStream[Row]:
    keyed = env.from_collection("orders", orders, parallelism=1).key_by(lambda order: order[0])
    return keyed.window(GlobalWindows()).trigger(AtEnough()).evictor(LastAndDear()).apply("told", told)


def expected(orders: list[Order]) -> list[Row]:
    rows = []
    for customer in "abc":
        spent, held = 0, list[int]()
        for price in (price for name, price in orders if name == customer):
            spent += price
            held.append(price)
            if spent >= ENOUGH:
                spent, held = 0, held[-MOST:]
                rows.append((customer, held))
                held = [each for each in held if each >= DEAR]
    return rows
