"""The two best players of each minute: windows over the results of windows.

The first windows add up the points of each player. Their results have the last moment of the window as
timestamp, so that all players of one minute meet in one window of `apply`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TimeWindow, TumblingEventTimeWindows

SECOND = 1_000_000

#: Player, second, points.
Score = tuple[str, int, int]
#: Minute, then the best with their points.
Row = tuple[int, list[tuple[int, str]]]


def added(one: Score, other: Score) -> Score:
    return one[0], one[1], one[2] + other[2]


def best(key: int, window: TimeWindow, scores: list[Score]) -> Iterator[Row]:
    ranked = sorted(((-points, player) for player, _, points in scores))[:2]
    yield window.start_timestamp // SECOND // 60, [(-points, player) for points, player in ranked]


def make_input(random: Random) -> list[Score]:
    return [(random.choice(("ann", "bob", "cem", "dora")), 4 * n, random.randrange(10)) for n in range(60)]


def build(env: StreamEnvironment, scores: list[Score]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda s: s[1] * SECOND)
    timed = env.from_source("scores", CollectionSource(scores), watermarks=strategy)
    minute = TumblingEventTimeWindows(60)
    of_players = timed.key_by(lambda score: score[0]).window(minute).reduce("points", added)
    return of_players.key_by(lambda score: 0).window(minute).apply("best", best)


def expected(scores: list[Score]) -> list[Row]:
    points: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for player, second, number in scores:
        points[second // 60][player] += number
    ranked = {
        minute: sorted(of.items(), key=lambda each: (-each[1], each[0])) for minute, of in points.items()
    }
    return [(minute, [(number, player) for player, number in of[:2]]) for minute, of in ranked.items()]


#: A drain ranks a part of a minute.
whole = None
