"""Calls by key: the charges of an account go out one after the other, those of different accounts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

from penstock import DataStream, KeyedProcessFunction, RuntimeContext, StreamEnvironment, ValueState

#: Account and number of the charge.
Charge = tuple[str, int]


class Charging:
    """Fails when an account is charged twice at a time."""

    def __init__(self) -> None:
        self.charged: set[str] = set()

    async def open(self, context: object) -> None:
        await asyncio.sleep(0.001)
        self.is_open = True

    async def __call__(self, charge: Charge) -> Charge:
        account, number = charge
        assert self.is_open
        assert account not in self.charged, f"{account} is charged twice at a time"
        self.charged.add(account)
        await asyncio.sleep(number % 4 / 1000)
        self.charged.discard(account)
        return charge

    async def close(self) -> None:
        await asyncio.sleep(0.001)
        self.is_open = False


class InOrder(KeyedProcessFunction[str, Charge, Charge]):
    """Fails when a charge of an account comes behind a later one."""

    last = ValueState(int, default=-1)

    def process(self, value: Charge, ctx: RuntimeContext) -> Iterator[Charge]:
        assert value[1] > self.last.value(), f"{value} came behind {self.last.value()}"
        self.last.update(value[1])
        yield value


def account_of(charge: Charge) -> str:
    return charge[0]


def make_input(random: Random) -> list[Charge]:
    return [(random.choice("abcde"), number) for number in range(50)]


def build(env: StreamEnvironment, charges: list[Charge]) -> DataStream[Charge]:
    keyed = env.from_collection("charges", charges, parallelism=1).key_by(account_of)
    charged = keyed.map_async(Charging, id="charged", capacity=6)
    return charged.key_by(account_of).process("in-order", InOrder())


def expected(charges: list[Charge]) -> list[Charge]:
    return charges
