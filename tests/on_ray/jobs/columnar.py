"""Numbers that flow as Arrow batches, aggregated by key and by window.

What must come out is computed from the numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from jobs.all_windows import Numbers

from penstock import StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Count, Max, Sum
from penstock.connectors import Sink
from penstock.windows import TumblingEventTimeWindows

KEYS: Final = 11
#: Numbers in a window.
WIDTH: Final = 20


def as_columns(batch: list[Any]) -> list[dict[str, Any]]:
    """Records of a source of tuples as dicts."""
    return [{"k": f"key {number % KEYS}", "v": number, "at": number * 1000} for _, number, _, _ in batch]


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def add_aggregations(
    env: StreamEnvironment, source: Numbers, sink_of: Callable[[str], Sink[Any]], parallelism: int
) -> None:
    """Add the source, an aggregation by key and one by window, and a sink for each."""
    columns = (
        env.from_source("numbers", source, parallelism=1)
        .map_batches(as_columns, parallelism=1)
        .map_batches(identity, "arrow", parallelism=1)
    )
    sums = columns.key_by("k").aggregate(
        "sums", n=Count(), total=Sum("v"), top=Max("v"), parallelism=parallelism
    )
    sums.sink("sums-out", sink_of("sums"), parallelism=parallelism)
    strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
    timed = columns.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row: int(row["at"])), parallelism=1
    )
    windows = timed.key_by("k").window(TumblingEventTimeWindows(WIDTH / 1000))
    panes = windows.aggregate("panes", n=Count(), total=Sum("v"), parallelism=parallelism)
    panes.map(as_row, parallelism=parallelism).sink("panes-out", sink_of("panes"), parallelism=parallelism)


def as_row(pane: dict[str, Any]) -> list[Any]:
    """A window as JSON can hold it."""
    return [pane["k"], round(pane["window_start"].timestamp() * 1000), pane["n"], pane["total"]]


def expected_sums(count: int) -> dict[str, tuple[int, int, int]]:
    """Number of records, sum and greatest value of each key."""
    sums = {}
    for key in range(min(KEYS, count)):
        values = range(key, count, KEYS)
        sums[f"key {key}"] = (len(values), sum(values), max(values))
    return sums


def expected_panes(count: int) -> list[list[Any]]:
    """All windows."""
    panes: dict[tuple[str, int], list[int]] = {}
    for number in range(count):
        panes.setdefault((f"key {number % KEYS}", number // WIDTH * WIDTH), []).append(number)
    return sorted([key, start, len(values), sum(values)] for (key, start), values in panes.items())
