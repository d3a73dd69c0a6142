"""An operator of one's own puts records into bundles of five, and keeps what is left in its list state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment
from penstock.operators import Operator, OperatorContext, RowBatch


class Bundles(Operator):
    """At another parallelism, what is kept is shared out among the subtasks."""

    def open(self, context: OperatorContext) -> None:
        self.state = context.operator_list_state("kept")
        self.kept = self.state.get()

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        self.kept = [*self.kept, *batch.rows]
        while len(self.kept) >= 5:
            bundle, self.kept = self.kept[:5], self.kept[5:]
            yield RowBatch([bundle])

    def snapshot(self, checkpoint_id: int) -> None:
        self.state.update(self.kept)

    def end_of_data(self) -> Iterator[RowBatch]:
        if self.kept:
            yield RowBatch([self.kept])
            self.kept = []


def make_input(random: Random) -> list[int]:
    return random.sample(range(1000), 48)


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[list[int]]:
    return env.from_collection("numbers", numbers).transform("bundles", Bundles())


def expected(numbers: list[int]) -> list[int]:
    return numbers


def comparable(bundles: Iterable[list[Any]]) -> list[Any]:
    """The numbers that meet in a bundle depend on the order; that each is in one does not."""
    bundles = list(bundles)
    assert all(1 <= len(bundle) <= 5 for bundle in bundles), f"bundles of another size: {bundles}"
    return [number for bundle in bundles for number in bundle]
