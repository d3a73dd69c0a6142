"""The highest bid of each lot, in a `ReducingState`: each bid that leads is emitted."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, ReducingState, RuntimeContext, StreamEnvironment

Bid = tuple[int, int]


class Leading(KeyedProcessFunction[int, Bid, Bid]):
    """Emits a bid that is higher than all before it. A bid of 0 withdraws the lot."""

    highest = ReducingState(max, int)

    def process(self, value: Bid, ctx: RuntimeContext) -> Iterator[Bid]:
        lot, cents = value
        if not cents:
            self.highest.clear()
            return
        before = self.highest.get()
        self.highest.add(cents)
        if before is None or cents > before:
            yield lot, cents


def make_input(random: Random) -> list[Bid]:
    return [(random.randrange(5), random.randrange(30)) for _ in range(60)]


def build(env: StreamEnvironment, bids: list[Bid]) -> DataStream[Bid]:
    keyed = env.from_collection("bids", bids, parallelism=1).key_by(lambda bid: bid[0])
    return keyed.process("leading", Leading())


def expected(bids: list[Bid]) -> list[Bid]:
    highest: dict[int, int] = {}
    rows = []
    for lot, cents in bids:
        if not cents:
            highest.pop(lot, None)
        elif cents > highest.get(lot, 0):
            highest[lot] = cents
            rows.append((lot, cents))
    return rows
