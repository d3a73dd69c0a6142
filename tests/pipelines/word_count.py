"""Words are counted, and each new count is emitted.

`reduce` keeps one value a key. The lines are read by two subtasks; all occurrences of a word meet in one.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from penstock import DataStream, StreamEnvironment

WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")


def make_input(random: Random) -> list[str]:
    return [" ".join(random.choices(WORDS, k=random.randrange(4))) for _ in range(30)]


def build(env: StreamEnvironment, lines: list[str]) -> DataStream[tuple[str, int]]:
    words = env.from_collection("lines", lines).flat_map(str.split).map(lambda word: (word, 1))
    return words.key_by(lambda pair: pair[0]).reduce("count", lambda old, new: (old[0], old[1] + new[1]))


def expected(lines: list[str]) -> list[tuple[str, int]]:
    counts = Counter(word for line in lines for word in line.split())
    return [(word, number) for word, count in counts.items() for number in range(1, count + 1)]
