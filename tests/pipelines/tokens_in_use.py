"""A token expires ten seconds after its last use: a TTL that reads refresh, in event time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StateTtl,
    StreamEnvironment,
    ValueState,
    WatermarkStrategy,
)

SECOND = 1_000_000

#: Second, token, and whether it is issued or used.
Event = tuple[int, str, str]
Row = tuple[int, str, str]


class Tokens(KeyedProcessFunction[str, Event, Row]):
    """Emits for each use by whom the token was issued, or that it does not work."""

    issued = ValueState(int, ttl=StateTtl(10, refreshed_by="reads_and_writes", time="event"))

    def process(self, value: Event, ctx: RuntimeContext) -> Iterator[Row]:
        second, token, what = value
        if what == "issue":
            self.issued.update(second)
            return
        since = self.issued.value()
        yield second, token, "refused" if since is None else f"issued at {since}"


def make_input(random: Random) -> list[Event]:
    seconds = sorted(random.randrange(100) for _ in range(60))
    return [(second, random.choice("abc"), random.choice(("issue", "use", "use"))) for second in seconds]


def build(env: StreamEnvironment, events: list[Event]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e: e[0] * SECOND)
    source = env.from_source("events", CollectionSource(events), watermarks=strategy, parallelism=1)
    return source.key_by(lambda event: event[1]).process("tokens", Tokens())


def expected(events: list[Event]) -> list[Row]:
    tokens: dict[str, tuple[int, int]] = {}
    rows = []
    for second, token, what in events:
        if what == "issue":
            tokens[token] = second, second
            continue
        since, used = tokens.get(token, (0, -100))
        works = second - used < 10
        if works:
            tokens[token] = since, second
        rows.append((second, token, f"issued at {since}" if works else "refused"))
    return rows
