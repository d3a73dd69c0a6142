"""Prices arrive in any order: `latest_by` lets a price pass if none of its product is newer, in columns.

The newest price of each product comes out last. Which older ones come out depends on the batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa

from penstock import DataStream, StreamEnvironment

Row = dict[str, Any]

IN_COLUMNS = True


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Asking for Arrow makes Arrow batches of rows."""
    return batch


def make_input(random: Random) -> list[Row]:
    versions = random.sample(range(1000), 60)
    return [{"product": random.choice("abcd"), "version": each, "cents": each * 7 % 90} for each in versions]


def build(env: StreamEnvironment, prices: list[Row]) -> DataStream[Row]:
    columns = env.from_collection("prices", prices).map_batches(as_columns, "arrow")
    return columns.latest_by("newest", "version", "product")


def expected(prices: list[Row]) -> list[Row]:
    newest: dict[str, Row] = {}
    for price in sorted(prices, key=lambda price: price["version"]):
        newest[price["product"]] = price
    return list(newest.values())


def comparable(rows: Iterable[Row]) -> list[Row]:
    """The last row of each product; versions never go back."""
    last: dict[str, Row] = {}
    for row in rows:
        before = last.get(row["product"], row)
        last[row["product"]] = row if row["version"] > before["version"] else before
    return list(last.values())
