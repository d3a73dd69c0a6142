"""A count of each word is emitted seldom: what was touched comes out before each checkpoint.

`emit_every` is long here, so the checkpoints alone decide. The last count of each word is the right one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment
from penstock.aggregates import Count

Row = dict[str, Any]

IN_COLUMNS = True


def make_input(random: Random) -> list[Row]:
    return [{"word": random.choice(("to", "be", "or", "not"))} for _ in range(50)]


def build(env: StreamEnvironment, words: list[Row]) -> DataStream[Row]:
    keyed = env.from_collection("words", words).key_by("word")
    return keyed.aggregate("count", emit_every=3600.0, seen=Count())


def expected(words: list[Row]) -> dict[str, list[tuple[str, int]]]:
    return {"out": list(Counter(row["word"] for row in words).items())}


def comparable(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """The last count of each word."""
    last: dict[str, int] = {}
    for row in rows:
        last[row["word"]] = max(row["seen"], last.get(row["word"], 0))
    return list(last.items())
