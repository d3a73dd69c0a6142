"""The same steps three times: in one chain, in chains of their own, and on another parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from penstock import DataStream, StreamEnvironment


def squared(number: int) -> int:
    return number * number


def is_odd(number: int) -> bool:
    return number % 2 == 1


def halves(number: int) -> list[int]:
    return [number // 2, number - number // 2]


def make_input(random: Random) -> list[int]:
    return [random.randrange(100) for _ in range(40)]


def build(env: StreamEnvironment, numbers: list[int]) -> Mapping[str, DataStream[int]]:
    source = env.from_collection("numbers", numbers)
    return {
        "one": source.map(squared).filter(is_odd).flat_map(halves),
        "broken": source.map(squared, disable_chaining=True)
        .filter(is_odd)
        .flat_map(halves, start_new_chain=True),
        "spread": source.map(squared, parallelism=3)
        .filter(is_odd, parallelism=1)
        .flat_map(halves, parallelism=2),
    }


def expected(numbers: list[int]) -> Mapping[str, list[int]]:
    rows = [half for number in numbers if number % 2 for half in (number**2 // 2, number**2 - number**2 // 2)]
    return {"one": rows, "broken": rows, "spread": rows}
