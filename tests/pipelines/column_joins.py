"""Orders and payments joined by time, over Arrow batches, with a condition on both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pipelines import interval_joins
from pipelines.interval_joins import HOWS, LOWER, UPPER, Input, Row, expected, make_input

from penstock import DataStream, StreamEnvironment

__all__ = ["build", "expected", "make_input", "whole"]

IN_COLUMNS = True

whole = None


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "customer", batch.column("customer").cast(pa.string()))


def numbers(row: Row) -> tuple[Any, Any, Any]:
    return row["customer"], row.get("order"), row.get("payment")


def build(env: StreamEnvironment, records: Input) -> Mapping[str, DataStream[Any]]:
    streams = [
        interval_joins.timed(env, name, rows).map_batches(as_columns, "arrow", parallelism=1)
        for name, rows in zip(("orders", "payments"), records, strict=True)
    ]
    orders, payments = (stream.key_by("customer") for stream in streams)
    # Arrow has no remainder.
    total = pc.field("order") + pc.field("payment")
    fits = total - pc.floor(total.cast(pa.float64()) / 3) * 3 > 0.5
    return {
        how: orders.join(
            payments, within=(LOWER, UPPER), how=how, where=fits, batch_format="arrow", id=f"{how}-join"
        ).map(numbers)
        for how in HOWS
    }
