"""Windows of so many records: the sum of every four numbers of a key, and of the last four at each second."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment


def third(number: int) -> int:
    return number % 3


def make_input(random: Random) -> list[int]:
    return [random.randrange(100) for _ in range(70)]


def build(env: StreamEnvironment, numbers: list[int]) -> Mapping[str, DataStream[Any]]:
    keyed = env.from_collection("numbers", numbers, parallelism=1).key_by(third)
    return {
        "fours": keyed.count_window(4).reduce("of-four", add),
        "last": keyed.count_window(4, 2).reduce("of-last", add),
    }


def expected(numbers: list[int]) -> Mapping[str, list[int]]:
    fours, last = [], []
    for key in range(3):
        of = [number for number in numbers if number % 3 == key]
        fours += [sum(of[end - 4 : end]) for end in range(4, len(of) + 1, 4)]
        last += [sum(of[max(0, end - 4) : end]) for end in range(2, len(of) + 1, 2)]
    return {"fours": fours, "last": last}
