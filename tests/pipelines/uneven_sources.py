"""Sources of different length: some subtasks are through while others read on, and checkpoints go on."""

from __future__ import annotations

from collections import Counter
from random import Random

from penstock import DataStream, StreamEnvironment

Input = tuple[list[str], list[str], list[str]]
Row = tuple[str, int]


def make_input(random: Random) -> Input:
    long, short = (random.choices("abcde", k=count) for count in (50, 3))
    return long, short, []


def build(env: StreamEnvironment, letters: Input) -> DataStream[Row]:
    long = env.from_collection("long", letters[0])
    short = env.from_collection("short", letters[1], parallelism=1)
    empty = env.from_collection("empty", letters[2], parallelism=1)
    ones = long.union(short.map(str.lower), empty).map(lambda letter: (letter, 1))
    return ones.key_by(lambda pair: pair[0]).reduce("count", lambda one, other: (one[0], one[1] + other[1]))


def expected(letters: Input) -> list[Row]:
    counts = Counter(letter for each in letters for letter in each)
    return [(letter, number) for letter, count in counts.items() for number in range(1, count + 1)]
