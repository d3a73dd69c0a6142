"""The contents of each basket, in a `MapState`: items are put in, taken out and paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, MapState, RuntimeContext, StreamEnvironment

Event = tuple[str, str, str]
Row = tuple[str, list[tuple[str, int]]]


class Basket(KeyedProcessFunction[str, Event, Row]):
    """Emits the content of a basket when it is paid for."""

    items = MapState(str, int)

    def process(self, value: Event, ctx: RuntimeContext) -> Iterator[Row]:
        _, event, item = value
        if event == "put":
            self.items[item] = self.items.get(item, 0) + 1
        elif event == "take":
            self.items.pop(item, None)
        else:
            yield ctx.current_key, sorted(self.items.items())
            self.items.clear()


def make_input(random: Random) -> list[Event]:
    events = ("put", "put", "put", "take", "pay")
    return [
        (random.choice("abc"), random.choice(events), random.choice(("tea", "jam", "rice")))
        for _ in range(70)
    ]


def build(env: StreamEnvironment, events: list[Event]) -> DataStream[Row]:
    keyed = env.from_collection("events", events, parallelism=1).key_by(lambda event: event[0])
    return keyed.process("basket", Basket())


def expected(events: list[Event]) -> list[Row]:
    baskets: dict[str, Counter[str]] = {}
    rows = []
    for customer, event, item in events:
        basket = baskets.setdefault(customer, Counter())
        if event == "put":
            basket[item] += 1
        elif event == "take":
            basket.pop(item, None)
        else:
            rows.append((customer, sorted(basket.items())))
            basket.clear()
    return rows
