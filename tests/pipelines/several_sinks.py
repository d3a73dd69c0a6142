"""One stream has several readers, each with a sink: all records, some of them, and running sums of them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from penstock import DataStream, StreamEnvironment

Pair = tuple[str, int]


def make_input(random: Random) -> list[Pair]:
    return [(random.choice("abc"), random.randrange(10)) for _ in range(40)]


def build(env: StreamEnvironment, pairs: list[Pair]) -> Mapping[str, DataStream[Pair]]:
    everything = env.from_collection("pairs", pairs, parallelism=1)
    sums = everything.key_by(lambda pair: pair[0]).reduce(
        "add", lambda one, other: (one[0], one[1] + other[1])
    )
    return {"all": everything, "even": everything.filter(lambda pair: pair[1] % 2 == 0), "sums": sums}


def expected(pairs: list[Pair]) -> Mapping[str, list[Pair]]:
    sums, total = [], dict.fromkeys("abc", 0)
    for name, number in pairs:
        total[name] += number
        sums.append((name, total[name]))
    return {"all": pairs, "even": [pair for pair in pairs if pair[1] % 2 == 0], "sums": sums}
