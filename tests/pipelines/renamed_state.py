"""The next version of a program keeps cents instead of euros: a state with another name, type and unit.

`build_again` continues from the savepoint of `build`. Whenever that was taken, the totals are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, RuntimeContext, StreamEnvironment, ValueState

Payment = tuple[str, int]


class Euros(KeyedProcessFunction[str, Payment, Payment]):
    """Keeps the total as text."""

    total = ValueState(str, default="0")

    def process(self, value: Payment, ctx: RuntimeContext) -> Iterator[Payment]:
        self.total.update(str(int(self.total.value()) + value[1]))
        yield ctx.current_key, 100 * int(self.total.value())


class Cents(KeyedProcessFunction[str, Payment, Payment]):
    """Takes the old totals over."""

    cents = ValueState(int, default=0, renamed_from="total", migrate=lambda euros: 100 * int(euros))

    def process(self, value: Payment, ctx: RuntimeContext) -> Iterator[Payment]:
        self.cents.update(self.cents.value() + 100 * value[1])
        yield ctx.current_key, self.cents.value()


def make_input(random: Random) -> list[Payment]:
    return [(random.choice("abc"), random.randrange(1, 50)) for _ in range(50)]


def build(env: StreamEnvironment, payments: list[Payment]) -> DataStream[Payment]:
    keyed = env.from_collection("payments", payments, parallelism=1).key_by(lambda payment: payment[0])
    return keyed.process("total", Euros())


def build_again(env: StreamEnvironment, payments: list[Payment]) -> DataStream[Payment]:
    keyed = env.from_collection("payments", payments, parallelism=1).key_by(lambda payment: payment[0])
    return keyed.process("total", Cents())


def expected(payments: list[Payment]) -> list[Payment]:
    totals: dict[str, int] = {}
    rows = []
    for name, euros in payments:
        totals[name] = totals.get(name, 0) + 100 * euros
        rows.append((name, totals[name]))
    return rows
