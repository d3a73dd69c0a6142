"""A union list of the operator: every subtask knows after a restart which plates all of them have let in.

A checkpoint holds the lists of all subtasks, and each subtask gets all of them back, at any parallelism. A
record that is read again after a failure is in no list: its checkpoint was taken before it came.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, ProcessFunction, RuntimeContext, StreamEnvironment
from penstock.state import OperatorListState

#: Number of the car, and whether it was let in before.
Row = tuple[int, bool]


class Gate(ProcessFunction[int, Row]):
    """Emits each number, and whether it was let in before, by whatever subtask."""

    seen = OperatorListState(int, mode="union")

    def open(self, ctx: RuntimeContext) -> None:
        self.known = set(self.seen.get())

    def process(self, value: int, ctx: RuntimeContext) -> Iterator[Row]:
        yield value, value in self.known
        self.known.add(value)

    def snapshot(self, checkpoint_id: int) -> None:
        self.seen.update(sorted(self.known))


def make_input(random: Random) -> list[int]:
    return random.sample(range(1_000), 60)


def build(env: StreamEnvironment, cars: list[int]) -> DataStream[Row]:
    return env.from_collection("cars", cars).rebalance().process("gate", Gate())


def expected(cars: list[int]) -> list[Row]:
    return [(car, False) for car in cars]
