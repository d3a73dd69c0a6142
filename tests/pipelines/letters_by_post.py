"""Windows of processing time: letters to one address are collected for a while, and leave in bags.

When a bag leaves depends on the clock, and so do the bags. That each letter is in one bag, and that a bag has
letters in the order in which they came, does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from random import Random

from penstock import DataStream, StreamEnvironment
from penstock.windows import TimeWindow, TumblingProcessingTimeWindows

#: Address and number of the letter.
Letter = tuple[str, int]
#: Address and numbers.
Bag = tuple[str, list[int]]


def packed(address: str, window: TimeWindow, letters: list[Letter]) -> Iterator[Bag]:
    if any(name != address for name, _ in letters) or window.end_timestamp - window.start_timestamp != 20_000:
        msg = f"letters of others, or another span: {letters}, {window}"
        raise AssertionError(msg)
    yield address, [number for _, number in letters]


def make_input(random: Random) -> list[Letter]:
    return [(random.choice("abc"), number) for number in range(60)]


def build(env: StreamEnvironment, letters: list[Letter]) -> DataStream[Bag]:
    source = env.from_collection("letters", letters, parallelism=1).key_by(lambda letter: letter[0])
    return source.window(TumblingProcessingTimeWindows(0.02)).apply("bags", packed)


def expected(letters: list[Letter]) -> Mapping[str, list[Letter]]:
    return {"letters": letters, "out of order": []}


def comparable(bags: list[Bag] | Mapping[str, list[Letter]]) -> Mapping[str, list[Letter]]:
    if isinstance(bags, Mapping):
        return bags
    return {
        "letters": [(address, number) for address, numbers in bags for number in numbers],
        "out of order": [
            (address, number)
            for address, numbers in bags
            for number, following in pairwise(numbers)
            if following < number
        ],
    }
