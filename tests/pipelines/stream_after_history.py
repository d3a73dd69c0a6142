"""One source after the other; the second one assigns its splits on request."""

from __future__ import annotations

from random import Random

from penstock import CollectionSource, DataStream, HybridSource, StreamEnvironment
from penstock.connectors import OnRequest

Input = tuple[list[str], list[str]]


def make_input(random: Random) -> Input:
    return [f"old {n}" for n in range(random.randrange(30))], [f"new {n}" for n in range(5, 40)]


def build(env: StreamEnvironment, words: Input) -> DataStream[str]:
    source = HybridSource(CollectionSource(words[0]), then=OnRequest(CollectionSource(words[1])))
    return env.from_source("words", source).map(str.upper)


def expected(words: Input) -> list[str]:
    return [word.upper() for part in words for word in part]
