"""Windows with `apply`: each day's readings in their order, and the time without any.

`apply` sees the key, the window and all of its records, which are kept until the window fires.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TimeWindow, TumblingEventTimeWindows

HOUR = 3_600_000_000
DAY = 24

#: Hour and sensor.
Reading = tuple[int, str]
#: Sensor, day, hours, the longest pause within the day.
Report = tuple[str, int, list[int], int]


def report(sensor: str, window: TimeWindow, readings: list[Reading]) -> Iterator[Report]:
    hours = [hour % DAY for hour, _ in readings]
    bounds = [0, *hours, DAY]
    pause = max(after - before for before, after in pairwise(bounds))
    yield sensor, window.start_timestamp // HOUR // DAY, hours, pause


def make_input(random: Random) -> list[Reading]:
    return [(2 * n, random.choice("abc")) for n in range(60)]


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[Report]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r: r[0] * HOUR)
    timed = env.from_source("readings", CollectionSource(readings), watermarks=strategy, parallelism=1)
    days = timed.key_by(lambda reading: reading[1]).window(TumblingEventTimeWindows(DAY * 3600))
    return days.apply("report", report)


def expected(readings: list[Reading]) -> list[Report]:
    reports = []
    for sensor in "abc":
        for day in range(2 * 60 // DAY + 1):
            hours = [hour % DAY for hour, name in readings if name == sensor and hour // DAY == day]
            pauses = [b - a for a, b in zip([0, *hours], [*hours, DAY], strict=True)]
            if hours:
                reports.append((sensor, day, hours, max(pauses)))
    return reports


#: A drain reports on a part of a day.
whole = None
