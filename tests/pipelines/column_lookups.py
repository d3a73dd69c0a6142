"""Orders get the price of their item over Arrow batches: from a table, and from functions of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pipelines.lookups import PRICES, Row, make_input, numbers
from pipelines.lookups import expected as expected_of_rows

from penstock import DataStream, StreamEnvironment

__all__ = ["build", "expected", "make_input"]

TABLE = pa.table({"item": list(PRICES), "price": [row["price"] for row in PRICES.values()]})


def prices_of(keys: pa.RecordBatch) -> pa.Table:
    return TABLE.filter(pc.is_in(TABLE["item"], keys["item"]))


async def asked(keys: pa.RecordBatch) -> pa.Table:
    await asyncio.sleep(keys.num_rows % 3 / 1000)
    return prices_of(keys)


def build(env: StreamEnvironment, orders: list[Row]) -> Mapping[str, DataStream[Any]]:
    source = env.from_collection("orders", orders, parallelism=1)
    batches = source.map_batches(as_columns, "arrow", parallelism=1)
    settings: Any = {"on": "item", "batch_format": "arrow"}
    found = {
        "table": batches.lookup(TABLE, **settings),
        "function": batches.lookup(prices_of, cache=2, id="function-lookup", **settings),
        "ordered": batches.lookup(asked, cache=2, capacity=3, id="ordered-lookup", **settings),
        "inner": batches.lookup(asked, ttl=0.004, how="inner", id="inner-lookup", **settings),
    }
    return {name: stream.map(numbers) for name, stream in found.items()}


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose items are all missing has no type of its own."""
    return batch.set_column(1, "item", batch.column("item").cast(pa.string()))


def expected(orders: list[Row]) -> Mapping[str, list[Any]]:
    rows = expected_of_rows(orders)
    return {**dict.fromkeys(("table", "function", "ordered"), rows["table"]), "inner": rows["unordered"]}
