"""Readings of meters come out of order and leave in the order of time; at one time the highest comes first.

Each reading is emitted with the one before it of its meter. So a wrong order shows in two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
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
DELAY = 12

#: Second, meter, reading.
Reading = tuple[int, str, int]
Step = tuple[str, int | None, int]


class Steps(KeyedProcessFunction[str, Reading, Step]):
    """Emits the meter, its reading before, and its reading."""

    before = ValueState(int)

    def process(self, value: Reading, ctx: RuntimeContext) -> Iterator[Step]:
        yield ctx.current_key, self.before.value(), value[2]
        self.before.update(value[2])


def make_input(random: Random) -> list[Reading]:
    """No reading is more than `DELAY` behind the newest one before it."""
    return [
        (2 * number + random.randrange(0, DELAY, 2), random.choice("abc"), number) for number in range(80)
    ]


def highest_first(reading: Reading) -> int:
    return -reading[2]


def meter_of(reading: Reading) -> str:
    return reading[1]


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[Step]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(DELAY)
    strategy = strategy.with_timestamp_assigner(lambda reading: reading[0] * SECOND)
    source = env.from_source("readings", CollectionSource(readings), watermarks=strategy, parallelism=1)
    in_order = source.key_by(meter_of).sorted_by_time("sorted", highest_first)
    return in_order.key_by(meter_of).process("steps", Steps())


def expected(readings: list[Reading]) -> list[Step]:
    ordered = sorted(readings, key=lambda reading: (reading[0], -reading[2]))
    of = {meter: [value for _, other, value in ordered if other == meter] for meter in "abc"}
    return [(meter, *step) for meter, values in of.items() for step in pairwise([None, *values])]


#: A drain releases all readings, and earlier ones come after it.
whole = None
