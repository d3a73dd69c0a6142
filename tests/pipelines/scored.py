"""Each subtask makes a model of a class, with arguments; a class of functions numbers what it has seen.

The model gets as many records at a time as there are. The numbers are the subtasks' own list state. So those
of one subtask have no gap and come once, whatever has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from penstock import DataStream, StreamEnvironment
from penstock.state import OperatorListState


class Model:
    """A line."""

    def __init__(self, weight: int, *, bias: int) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, batch: list[int]) -> list[int]:
        return [self.weight * number + self.bias for number in batch]


class Numbered:
    """Gives each record the next number of a book, which is called like the first record in it."""

    books = OperatorListState(tuple)

    def __call__(self, score: int) -> tuple[int, int, int]:
        books = self.books.get()
        first, number = books.pop() if books else (score, 0)
        self.books.update([*books, (first, number + 1)])
        return first, number, score


def make_input(random: Random) -> list[int]:
    return random.sample(range(1_000), 60)


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[tuple[int, int, int]]:
    scores = env.from_collection("numbers", numbers).rebalance()
    return scores.map_batches(
        Model, fn_constructor_args=(3,), fn_constructor_kwargs={"bias": 1}, id="score"
    ).map(Numbered, id="numbered")


def expected(numbers: list[int]) -> Mapping[str, list[int]]:
    return {"out": [3 * number + 1 for number in numbers]}


def comparable(rows: Iterable[tuple[int, int, int]]) -> list[int]:
    """The scores; the numbers of each book must go from 0 without a gap."""
    rows = list(rows)
    for book in {first for first, _, _ in rows}:
        numbers = sorted(number for first, number, _ in rows if first == book)
        assert numbers == list(range(len(numbers))), f"book {book}: {numbers}"
    return [score for _, _, score in rows]
