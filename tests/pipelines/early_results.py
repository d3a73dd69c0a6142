"""Results before a window ends: the count of a minute after every third record, and at the end."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import CountTrigger, EventTimeTrigger, TimeWindow, TumblingEventTimeWindows

SECOND = 1_000_000

#: Second and sensor.
Reading = tuple[int, str]
#: Sensor, minute, and the number of readings so far.
Row = tuple[str, int, int]


def counted(sensor: str, window: TimeWindow, readings: list[Reading]) -> Iterator[Row]:
    yield sensor, window.start_timestamp // SECOND // 60, len(readings)


def make_input(random: Random) -> list[Reading]:
    return [(3 * n, random.choice("abc")) for n in range(70)]


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r: r[0] * SECOND)
    timed = env.from_source("readings", CollectionSource(readings), watermarks=strategy, parallelism=1)
    minutes = timed.key_by(lambda reading: reading[1]).window(TumblingEventTimeWindows(60))
    return minutes.trigger(EventTimeTrigger(early=CountTrigger(3))).apply("counts", counted)


def expected(readings: list[Reading]) -> list[Row]:
    numbers: dict[tuple[str, int], int] = {}
    rows = []
    for second, sensor in readings:
        of = sensor, second // 60
        numbers[of] = numbers.get(of, 0) + 1
        if numbers[of] % 3 == 0:
            rows.append((*of, numbers[of]))
    return rows + [(*of, number) for of, number in numbers.items()]


#: A drain emits a part of a minute.
whole = None
