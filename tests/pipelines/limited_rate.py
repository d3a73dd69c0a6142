"""Records pass at a rate, behind a source and behind an exchange, and none is lost or doubled."""

from __future__ import annotations

from random import Random

from penstock import DataStream, StreamEnvironment


def make_input(random: Random) -> list[int]:
    return [random.randrange(50) for _ in range(60)]


def build(env: StreamEnvironment, numbers: list[int]) -> DataStream[int]:
    limited = env.from_collection("numbers", numbers).rate_limit(600)
    return limited.map(abs).rebalance().rate_limit(400, parallelism=1).map(lambda number: number + 1)


def expected(numbers: list[int]) -> list[int]:
    return [number + 1 for number in numbers]
