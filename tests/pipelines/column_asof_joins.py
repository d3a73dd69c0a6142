"""Trades joined with quotes by time in all strategies, and as versions that end, over Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pipelines import asof_joins
from pipelines.asof_joins import STRATEGIES, TOLERANCE, Input, expected, make_input, numbers

from penstock import DataStream, StreamEnvironment

__all__ = ["build", "expected", "make_input", "whole"]

IN_COLUMNS = True

whole = None


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "share", batch.column("share").cast(pa.string()))


def build(env: StreamEnvironment, records: Input) -> Mapping[str, DataStream[Any]]:
    trades, quotes = (
        asof_joins.timed(env, name, rows).map_batches(as_columns, "arrow", parallelism=1).key_by("share")
        for name, rows in zip(("trades", "quotes"), records, strict=True)
    )
    asof = {
        strategy: trades.join_asof(
            quotes, strategy=strategy, tolerance=TOLERANCE, batch_format="arrow", id=f"{strategy}-join"
        ).map(numbers)
        for strategy in STRATEGIES
    }
    # Arrow has no remainder.
    ends = pc.field("quote") - pc.floor(pc.field("quote").cast(pa.float64()) / 4) * 4 < 0.5
    temporal = trades.join_temporal(
        quotes, deleted=ends, how="inner", batch_format="arrow", id="temporal-join"
    )
    return {**asof, "temporal": temporal.map(numbers)}
