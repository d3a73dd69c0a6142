"""The two most frequent words of each ten seconds: counted by key, ranked by windows without keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TimeWindow, TumblingEventTimeWindows

SECOND = 1_000_000
TEN = TumblingEventTimeWindows(10)

#: Second and word.
Said = tuple[int, str]
#: Number of the window, then the first words with their counts.
Row = tuple[int, list[tuple[str, int]]]


def counted(word: str, window: TimeWindow, said: list[Said]) -> Iterator[tuple[str, int]]:
    yield word, len(said)


def ranked(window: TimeWindow, counts: list[tuple[str, int]]) -> Iterator[Row]:
    yield window.start_timestamp // SECOND // 10, sorted(counts, key=lambda each: (-each[1], each[0]))[:2]


def make_input(random: Random) -> list[Said]:
    return [(n, random.choice(("ink", "ivy", "oak", "owl"))) for n in range(70)]


def build(env: StreamEnvironment, said: list[Said]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda s: s[0] * SECOND)
    timed = env.from_source("words", CollectionSource(said), watermarks=strategy)
    counts = timed.key_by(lambda each: each[1]).window(TEN).apply("counts", counted)
    return counts.window_all(TEN).apply("ranks", ranked)


def expected(said: list[Said]) -> list[Row]:
    words: dict[int, list[str]] = defaultdict(list)
    for second, word in said:
        words[second // 10].append(word)
    rows = []
    for number, of in words.items():
        order = sorted(Counter(of).items(), key=lambda each: (-each[1], each[0]))
        rows.append((number, order[:2]))
    return rows


#: A drain ranks a part of the words.
whole = None
