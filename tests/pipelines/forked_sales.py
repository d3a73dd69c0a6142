"""A chain forks: its branches change records, call a service and sum in windows. One sum leaves at the fork.

The async call holds watermarks, which the windows of the other branches need.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pipelines.minutes import LATEST, SECOND, Sale, make_input

from penstock import CollectionSource, DataStream, StreamEnvironment, WatermarkStrategy
from penstock.windows import TumblingEventTimeWindows

__all__ = ["build", "expected", "make_input", "whole"]

#: Shop, second and cents, as a list that functions may change.
Row = list[Any]


def marked(row: Row) -> Row:
    row.append("marked")
    return row


async def asked(row: Row) -> Row:
    row[2] += 1000
    await asyncio.sleep(row[1] % 3 / 1000)
    return row


def together(one: Row, other: Row) -> Row:
    return [one[0], min(one[1], other[1]), one[2] + other[2]]


def sums(stream: DataStream[Row], id: str) -> DataStream[Sale]:
    minutes = stream.key_by(lambda row: row[0]).window(TumblingEventTimeWindows(60)).reduce(id, together)
    return minutes.map(lambda row: (row[0], row[1] // 60, row[2]))


def build(env: StreamEnvironment, sales: list[Sale]) -> Mapping[str, DataStream[Any]]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(LATEST)
    strategy = strategy.with_timestamp_assigner(lambda sale: sale[1] * SECOND)
    rows = env.from_source("sales", CollectionSource(sales), watermarks=strategy).map(list)
    return {
        "marked": rows.map(marked).map(tuple),
        "asked": rows.map_async(asked, id="asks", capacity=3).map(tuple),
        "even": sums(rows.filter(lambda row: row[2] % 2 == 0), "even-sums"),
        "all": sums(rows, "sums"),
    }


def expected(sales: list[Sale]) -> Mapping[str, list[Any]]:
    return {
        "marked": [(*sale, "marked") for sale in sales],
        "asked": [(shop, second, cents + 1000) for shop, second, cents in sales],
        "even": by_minute([sale for sale in sales if sale[2] % 2 == 0]),
        "all": by_minute(sales),
    }


def by_minute(sales: list[Sale]) -> list[Sale]:
    totals: dict[tuple[str, int], int] = defaultdict(int)
    for shop, second, cents in sales:
        totals[shop, second // 60] += cents
    return [(shop, minute, cents) for (shop, minute), cents in totals.items()]


def whole(rows: Mapping[str, list[Any]]) -> Mapping[str, list[Any]]:
    """A drain fires open windows. Their later records are windows of their own, so the sums are the same."""
    again = {
        name: by_minute([(shop, 60 * minute, cents) for shop, minute, cents in rows[name]])
        for name in ("even", "all")
    }
    return {**rows, **again}
