"""Records are spread over more subtasks for slow work, and come together again."""

from __future__ import annotations

from random import Random

from penstock import DataStream, StreamEnvironment


def digits(number: int) -> tuple[int, int]:
    return number, sum(map(int, str(number**50)))


def make_input(random: Random) -> list[int]:
    return [random.randrange(1000) for _ in range(50)]


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[tuple[int, int]]:
    spread = env.from_collection("numbers", numbers, parallelism=1).rebalance()
    return spread.map(digits, parallelism=3, id="work").map(lambda pair: (pair[1], pair[0]), parallelism=1)


def expected(numbers: list[int]) -> list[tuple[int, int]]:
    return [(sum(int(digit) for digit in str(number**50)), number) for number in numbers]
