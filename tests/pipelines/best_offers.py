"""The three lowest offers of each product, by insertions and deletions: `top_n` in columns."""

from __future__ import annotations

from collections import Counter
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
    cents = random.sample(range(1000), 80)
    return [{"product": random.choice("abcd"), "cents": each, "shop": f"s-{each}"} for each in cents]


def build(env: StreamEnvironment, offers: list[Row]) -> DataStream[Row]:
    columns = env.from_collection("offers", offers).map_batches(as_columns, "arrow")
    return columns.top_n("best", "cents", 3, "product", descending=False, change_kind="change")


def expected(offers: list[Row]) -> list[Row]:
    offers = sorted(offers, key=lambda offer: offer["cents"])
    return [
        offer
        for product in sorted({offer["product"] for offer in offers})
        for offer in [each for each in offers if each["product"] == product][:3]
    ]


def comparable(rows: Iterable[Row]) -> list[Row]:
    """The offers that are inserted and not deleted; each must be there once."""
    held: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        held[row["product"], row["cents"], row["shop"]] += 1 if row["change"] == "insert" else -1
    assert set(held.values()) <= {0, 1}, f"inserted or deleted twice: {held}"
    return [dict(zip(("product", "cents", "shop"), key, strict=True)) for key, count in held.items() if count]
