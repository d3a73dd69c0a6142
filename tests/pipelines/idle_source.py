"""A source without records holds up no operator: after a while it is idle.

Its few records come last and lie behind all others in event time. So they are not late, although windows fire
while the source is idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.connectors import ConnectorContext, Polled, SourceReader
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000

#: Second and sensor.
Reading = tuple[int, str]
Input = tuple[list[Reading], list[Reading]]
#: Sensor, window, how many.
Row = tuple[str, int, int]


class Quiet(CollectionSource[Reading]):
    """Says nothing for a fifth of a second, then all."""

    def reader(self, context: ConnectorContext, splits: Sequence[object]) -> SourceReader[Reading]:
        return QuietReader(super().reader(context, splits), context)


class QuietReader:
    """Waits before it reads."""

    def __init__(self, reader: SourceReader[Reading], context: ConnectorContext) -> None:
        self.reader, self.clock = reader, context.clock
        self.begins_at = context.clock.monotonic() + 0.2

    def poll(self, max_rows: int) -> Polled[Reading]:
        if self.clock.monotonic() < self.begins_at:
            return Polled(ready_at=self.begins_at)
        return self.reader.poll(max_rows)

    def snapshot(self) -> Sequence[object]:
        return self.reader.snapshot()

    def close(self) -> None:
        self.reader.close()


def make_input(random: Random) -> Input:
    busy = [(second, random.choice("ab")) for second in range(50)]
    return busy, [(100 + second, random.choice("ab")) for second in range(6)]


def build(env: StreamEnvironment, readings: Input) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r: r[0] * SECOND)
    strategy = strategy.with_idleness(0.05)
    busy = env.from_source("busy", CollectionSource(readings[0]), watermarks=strategy, parallelism=1)
    quiet = env.from_source("quiet", Quiet(readings[1]), watermarks=strategy, parallelism=1)
    ones = busy.union(quiet).map(lambda reading: (reading[1], reading[0] // 10, 1))
    windows = ones.key_by(lambda row: row[0]).window(TumblingEventTimeWindows(10))
    return windows.reduce("count", lambda one, other: (one[0], one[1], one[2] + other[2]))


def expected(readings: Input) -> list[Row]:
    counts = Counter((sensor, second // 10) for second, sensor in (*readings[0], *readings[1]))
    return [(sensor, window, count) for (sensor, window), count in counts.items()]


def whole(rows: Iterable[Row]) -> list[Row]:
    """Windows that a drain has fired in pieces, put together."""
    counts: Counter[tuple[str, int]] = Counter()
    for sensor, window, count in rows:
        counts[sensor, window] += count
    return [(sensor, window, count) for (sensor, window), count in counts.items()]
