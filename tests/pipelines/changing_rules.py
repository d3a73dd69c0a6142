"""Rules that change beside data: each reading is compared with the limit that was in force at its time.

Every subtask has all rules in broadcast state, with the seconds from which they are in force. A reading waits
in keyed state until event time has passed it. All rules up to then have come, whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    MapState,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.connected import BroadcastContext, BroadcastState, KeyedBroadcastProcessFunction

SECOND = 1_000_000

#: Second, place, degrees.
Reading = tuple[int, str, int]
#: Second, place, highest degrees; `None` removes the rule of a place.
Rule = tuple[int, str, int | None]
Row = tuple[int, str, int, int | None]


class Exceeded(KeyedBroadcastProcessFunction[str, Reading, Rule, Row]):
    """Emits each reading with the limit of its place, if it exceeds it or there is none."""

    waiting = MapState(int, int)
    limits = BroadcastState(tuple)

    def process_element(self, value: Reading, ctx: RuntimeContext) -> None:
        self.waiting[value[0]] = value[2]
        ctx.timer_service.register_event_time_timer(value[0] * SECOND)

    def process_broadcast_element(self, value: Rule, ctx: BroadcastContext) -> None:
        second, place, limit = value
        self.limits[place, second] = limit

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Row]:
        second, place = at // SECOND, ctx.current_key
        since = [begin for of, begin in self.limits if of == place and begin <= second]
        limit = self.limits[place, max(since)] if since else None
        degrees = self.waiting.pop(second)
        if limit is None or degrees > limit:
            yield second, place, degrees, limit


def make_input(random: Random) -> tuple[list[Reading], list[Rule]]:
    places = "abcd"
    times = random.sample([(second, place) for second in range(60) for place in places], 60)
    readings = [(second, place, random.randrange(100)) for second, place in sorted(times)]
    changes = random.sample([(second, place) for second in range(60) for place in places], 25)
    rules = [(second, place, random.choice([None, *range(0, 100, 5)])) for second, place in sorted(changes)]
    return readings, rules


def build(env: StreamEnvironment, given: tuple[list[Reading], list[Rule]]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e: e[0] * SECOND)
    readings, rules = (
        env.from_source(name, CollectionSource(events), watermarks=strategy, parallelism=parallelism)
        for name, events, parallelism in zip(("readings", "rules"), given, (1, None), strict=True)
    )
    by_place = readings.key_by(lambda reading: reading[1])
    return by_place.connect(rules.broadcast()).process("exceeded", Exceeded())


def expected(given: tuple[list[Reading], list[Rule]]) -> list[Row]:
    readings, rules = given
    rows = []
    for second, place, degrees in readings:
        limits = [limit for since, of, limit in rules if of == place and since <= second]
        if not limits or limits[-1] is None or degrees > limits[-1]:
            rows.append((second, place, degrees, limits[-1] if limits else None))
    return rows


#: A drain fires all timers early.
whole = None
