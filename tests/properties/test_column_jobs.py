"""An aggregation over columns ends with the same values whatever fails, and with those of its row form."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime import (
    Checkpointing,
    CollectSink,
    Count,
    CountDistinct,
    DataStream,
    First,
    InMemoryCollector,
    Last,
    Max,
    Mean,
    Min,
    StdDev,
    StreamEnvironment,
    Sum,
)
from penstock.runtime.testing import simulate

Rows = list[dict[str, Any]]

SETTINGS = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "with timeout": {"unaligned": True, "aligned_timeout": 0.01},
    "stored": {"alignment": "store"},
}


def last_values(results: InMemoryCollector, key: tuple[str, ...]) -> dict[Any, Any]:
    """The record of each key that has counted most."""
    newest: dict[Any, Any] = {}
    for row in results.rows():
        name = tuple(repr(row[part]) for part in key)
        if name not in newest or row["n"] > newest[name]["n"]:
            newest[name] = row
    return newest


def job_of(
    rows: Rows,
    aggregate: Callable[[DataStream[Any]], DataStream[Any]],
    *,
    columns: bool,
    **checkpointing: Any,
) -> Callable[[], tuple[StreamEnvironment, InMemoryCollector]]:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        env = StreamEnvironment(parallelism=2, checkpointing=Checkpointing(every=1, **checkpointing))
        stream = env.from_collection("rows", rows)
        if columns:
            stream = stream.map_batches(lambda batch: batch, "arrow")
        aggregate(stream).sink("out", CollectSink(results))
        return env, results

    return build


def numbers(seed: int, keys: int, count: int = 120) -> Rows:
    draws = Random(seed)
    return [{"k": draws.randrange(keys), "v": draws.randrange(-50, 50)} for _ in range(count)]


def sums(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by("k").aggregate("sums", n=Count(), total=Sum("v"), top=Max("v"), mean=Mean("v"))


@pytest.mark.parametrize("mode", list(SETTINGS))
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_no_record_is_lost_or_counted_twice_whatever_fails(mode: str, columns: bool) -> None:
    rows = numbers(1, keys=7)
    expected = {
        (repr(key),): sum(row["v"] for row in rows if row["k"] == key) for key in {row["k"] for row in rows}
    }
    report = simulate(
        job_of(rows, sums, columns=columns, **SETTINGS[mode]),
        output=lambda results: {k: row["total"] for k, row in last_values(results, ("k",)).items()},
        seeds=range(12),
        interleavings=2,
    )
    assert report.expected == expected
