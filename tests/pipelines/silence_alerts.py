"""Alerts by timers of event time: a sensor from which nothing came for ten seconds is named.

A reading deletes the timer of the one before it. A watermark follows a batch of records. So a reading may
come too late and still find the timer waiting. At the end of the input all timers fire.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import (
    CollectionSource,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamEnvironment,
    ValueState,
    WatermarkStrategy,
)

SECOND = 1_000_000
LIMIT = 10

#: Second and sensor.
Reading = tuple[int, str]
Alert = tuple[str, int]


class Silence(KeyedProcessFunction[str, Reading, Alert]):
    """Emits the sensor, and since when it is silent."""

    newest = ValueState(int)

    def process(self, value: Reading, ctx: RuntimeContext) -> Iterator[Alert]:
        before = self.newest.value()
        if before is not None:
            ctx.timer_service.delete_event_time_timer((before + LIMIT) * SECOND)
            if value[0] - before > LIMIT:
                yield ctx.current_key, before
        self.newest.update(value[0])
        ctx.timer_service.register_event_time_timer((value[0] + LIMIT) * SECOND)

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterator[Alert]:
        yield ctx.current_key, at // SECOND - LIMIT
        self.newest.clear()


def make_input(random: Random) -> list[Reading]:
    seconds = sorted(random.randrange(150) for _ in range(50))
    return [(second, random.choice("abcdef")) for second in seconds]


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[Alert]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r: r[0] * SECOND)
    source = env.from_source("readings", CollectionSource(readings), watermarks=strategy, parallelism=1)
    return source.key_by(lambda reading: reading[1]).process("silence", Silence())


def expected(readings: list[Reading]) -> list[Alert]:
    of: dict[str, list[int]] = {}
    for second, sensor in readings:
        of.setdefault(sensor, []).append(second)
    return [
        (sensor, second)
        for sensor, seconds in of.items()
        for second, following in zip(seconds, [*seconds[1:], 10**6], strict=True)
        # A reading at the very moment of the timer still puts it off.
        if following - second > LIMIT
    ]


#: A drain fires all timers early, which are unpredictable alerts.
whole = None
