"""A running sum of each account, in a `ValueState`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, RuntimeContext, StreamEnvironment, ValueState

Payment = tuple[str, int]


class Balance(KeyedProcessFunction[str, Payment, Payment]):
    """Adds each payment to the balance of its account; a balance of zero takes no room."""

    cents = ValueState(int, default=0)

    def process(self, value: Payment, ctx: RuntimeContext) -> Iterator[Payment]:
        balance = self.cents.value() + value[1]
        if balance:
            self.cents.update(balance)
        else:
            self.cents.clear()
        yield ctx.current_key, balance


def make_input(random: Random) -> list[Payment]:
    return [(random.choice("abcde"), random.randrange(-3, 4)) for _ in range(50)]


def build(env: StreamEnvironment, payments: list[Payment]) -> DataStream[Payment]:
    # One subtask reads, so that the payments of an account come in their order.
    keyed = env.from_collection("payments", payments, parallelism=1).key_by(lambda payment: payment[0])
    return keyed.process("balance", Balance())


def expected(payments: list[Payment]) -> list[Payment]:
    balances: dict[str, int] = {}
    rows = []
    for account, cents in payments:
        balances[account] = balances.get(account, 0) + cents
        rows.append((account, balances[account]))
    return rows
