"""One record becomes many, or none: `flat_map` with a generator that yields up to fifty records."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import DataStream, StreamEnvironment


def multiples(number: int) -> Iterator[tuple[int, int]]:
    for times in range(number % 51):
        yield number, times


def make_input(random: Random) -> list[int]:
    return [random.choice((0, 1, 2, 50, 102)) for _ in range(15)]


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[tuple[int, int]]:
    many = env.from_collection("numbers", numbers).flat_map(multiples)
    # Nothing of 102 is left: its remainder is 0.
    return many.rebalance().filter(lambda pair: pair[1] % 2 == 0)


def expected(numbers: list[int]) -> list[tuple[int, int]]:
    return [(number, times) for number in numbers for times in range(0, number % 51, 2)]
