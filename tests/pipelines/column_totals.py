"""Totals by key over Arrow batches: filters, computed columns and sums never see a single row.

A total comes out again whenever a batch has touched its shop. So the number of sales tells which is the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import DataStream, StreamEnvironment
from penstock.aggregates import Count, Max, Sum

Row = dict[str, Any]

IN_COLUMNS = True


def as_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Asking for Arrow makes Arrow batches of rows."""
    return batch


def make_input(random: Random) -> list[Row]:
    return [
        {"shop": random.choice("abcd"), "cents": random.randrange(90), "pieces": n % 4} for n in range(60)
    ]


def build(env: StreamEnvironment, sales: list[Row]) -> DataStream[Row]:
    columns = env.from_collection("sales", sales).map_batches(as_columns, "arrow")
    sold = columns.with_columns(total=pc.field("cents") * pc.field("pieces")).filter(pc.field("pieces") > 0)
    by_shop = sold.key_by("shop")
    return by_shop.aggregate("totals", total=Sum("total"), highest=Max("cents"), sales=Count())


def expected(sales: list[Row]) -> list[tuple[str, int, int, int]]:
    rows = []
    for shop in sorted({sale["shop"] for sale in sales}):
        sold = [sale for sale in sales if sale["shop"] == shop and sale["pieces"]]
        total = sum(sale["cents"] * sale["pieces"] for sale in sold)
        if sold:
            rows.append((shop, total, max(sale["cents"] for sale in sold), len(sold)))
    return rows


def comparable(rows: Iterable[Row]) -> list[tuple[str, int, int, int]]:
    """The last row of each shop; a row that comes twice is an error."""
    last: dict[str, Row] = {}
    seen = set()
    for row in rows:
        assert (row["shop"], row["sales"]) not in seen, f"twice: {row}"
        seen.add((row["shop"], row["sales"]))
        last[row["shop"]] = max(row, last.get(row["shop"], row), key=lambda each: each["sales"])
    return [(row["shop"], row["total"], row["highest"], row["sales"]) for row in last.values()]
