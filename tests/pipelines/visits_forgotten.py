"""Visits are counted until a visitor stays away for ten seconds: a TTL that writes refresh, in event time.

One subtask reads, in the order of time. So what has expired depends on the records alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    KeyedProcessFunction,
    MapState,
    RuntimeContext,
    StateTtl,
    StreamEnvironment,
    ValueState,
    WatermarkStrategy,
)

SECOND = 1_000_000
TEN_SECONDS = StateTtl(10, time="event")

#: Second, visitor, page.
Visit = tuple[int, str, str]
Row = tuple[int, str, int, list[str]]


class Visits(KeyedProcessFunction[str, Visit, Row]):
    """Emits the number of visits without a long pause, and the pages of the last ten seconds."""

    number = ValueState(int, default=0, ttl=TEN_SECONDS)
    pages = MapState(str, int, ttl=TEN_SECONDS)

    def process(self, value: Visit, ctx: RuntimeContext) -> Iterator[Row]:
        second, visitor, page = value
        self.number.update(self.number.value() + 1)
        self.pages[page] = second
        yield second, visitor, self.number.value(), sorted(self.pages)


def make_input(random: Random) -> list[Visit]:
    seconds = sorted(random.randrange(120) for _ in range(60))
    return [(second, random.choice("abcd"), random.choice("xyz")) for second in seconds]


def build(env: StreamEnvironment, visits: list[Visit]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v: v[0] * SECOND)
    source = env.from_source("visits", CollectionSource(visits), watermarks=strategy, parallelism=1)
    return source.key_by(lambda visit: visit[1]).process("visits-of", Visits())


def expected(visits: list[Visit]) -> list[Row]:
    newest: dict[str, tuple[int, int]] = {}
    pages: dict[str, dict[str, int]] = {}
    rows = []
    for second, visitor, page in visits:
        before, number = newest.get(visitor, (-100, 0))
        newest[visitor] = second, number + 1 if second - before < 10 else 1
        pages.setdefault(visitor, {})[page] = second
        seen = sorted(each for each, at in pages[visitor].items() if second - at < 10)
        rows.append((second, visitor, newest[visitor][1], seen))
    return rows
