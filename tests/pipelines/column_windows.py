"""Tumbling windows over Arrow batches, whose timestamps are a column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa

from penstock import DataStream, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Count, Sum
from penstock.windows import TumblingEventTimeWindows

SECOND = 1_000_000

Row = dict[str, Any]

IN_COLUMNS = True


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def make_input(random: Random) -> list[Row]:
    return [
        {
            "sensor": random.randrange(3),
            "at": (3 * n + random.randrange(5)) * SECOND,
            "value": random.randrange(50),
        }
        for n in range(60)
    ]


def build(env: StreamEnvironment, readings: list[Row]) -> DataStream[tuple[int, int, int, int]]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_column("at")
    columns = env.from_collection("readings", readings, parallelism=1).map_batches(
        as_columns, "arrow", parallelism=1
    )
    timed = columns.assign_timestamps_and_watermarks(strategy, parallelism=1)
    minutes = timed.key_by("sensor").window(TumblingEventTimeWindows(60))
    sums = minutes.aggregate("sums", total=Sum("value"), readings=Count())
    return sums.map(lambda row: (row["sensor"], row["window_start"].minute, row["total"], row["readings"]))


def expected(readings: list[Row]) -> list[tuple[int, int, int, int]]:
    windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in readings:
        windows[row["sensor"], row["at"] // SECOND // 60].append(row["value"])
    return [(sensor, minute, sum(held), len(held)) for (sensor, minute), held in windows.items()]


def whole(rows: Iterable[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Windows that a drain has fired in pieces, put together."""
    windows: dict[tuple[int, int], tuple[int, int]] = {}
    for sensor, minute, total, number in rows:
        before = windows.get((sensor, minute), (0, 0))
        windows[sensor, minute] = before[0] + total, before[1] + number
    return [(*key, *of) for key, of in windows.items()]
