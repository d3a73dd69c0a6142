"""The same aggregation over rows and over Arrow batches, in one job: both give the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pyarrow as pa

from penstock import DataStream, StreamEnvironment
from penstock.aggregates import Count, CountDistinct, Max, Min, Sum

Row = dict[str, Any]

IN_COLUMNS = True


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def make_input(random: Random) -> list[Row]:
    def value() -> int | None:
        return None if random.random() < 0.2 else random.randrange(-20, 20)

    return [{"k": random.randrange(4), "value": value(), "n": n} for n in range(50)]


def build(env: StreamEnvironment, rows: list[Row]) -> Mapping[str, DataStream[Row]]:
    source = env.from_collection("rows", rows)
    columns = source.map_batches(as_columns, "arrow")
    functions = {
        "sum": Sum("value"),
        "low": Min("value"),
        "high": Max("value"),
        "values": CountDistinct("value"),
        "n": Count(),
    }
    return {
        "rows": source.key_by("k").aggregate("of-rows", **functions),
        "columns": columns.key_by("k").aggregate("of-columns", **functions),
    }


def expected(rows: list[Row]) -> Mapping[str, list[Row]]:
    made = []
    for key in sorted({row["k"] for row in rows}):
        values = [row["value"] for row in rows if row["k"] == key and row["value"] is not None]
        made.append(
            {
                "k": key,
                "sum": sum(values) if values else None,
                "low": min(values, default=None),
                "high": max(values, default=None),
                "values": len(set(values)),
                "n": sum(row["k"] == key for row in rows),
            }
        )
    return {"rows": made, "columns": made}


def comparable(outputs: Mapping[str, Iterable[Row]]) -> Mapping[str, list[Row]]:
    """The last row of each key."""
    last: dict[str, dict[int, Row]] = {"rows": {}, "columns": {}}
    for name, rows in outputs.items():
        for row in rows:
            last[name][row["k"]] = max(row, last[name].get(row["k"], row), key=lambda each: each["n"])
    return {name: list(of.values()) for name, of in last.items()}
