"""Steps of Nexmark's queries for systems whose operators take Python functions; an event is a dict.

The module runs in the other systems' Python environments. So apart from the standard library it imports only
numpy and the event generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
from nexmark_events import AUCTION, BID, PERSON, NexmarkConfig, as_rows, events

Row = dict[str, Any]

_EURO: Final = Decimal("0.908")
_BLOCK: Final = 4_096
_PRICED: Final = ("auction", "bidder", "price", "dateTime", "extra")


def config_of(settings: Mapping[str, Any]) -> NexmarkConfig:
    """The configuration from JSON settings, whose base time is in milliseconds."""
    return NexmarkConfig(
        **{**settings, "base_time": datetime.fromtimestamp(settings["base_time"] / 1000, UTC)}
    )


def blocks(config: NexmarkConfig, start: int, count: int) -> Iterator[list[Row]]:
    """Yield the events with numbers from `start` to `count - 1`, as lists."""
    for first in range(start, count, _BLOCK):
        numbers = np.arange(first, min(first + _BLOCK, count), dtype=np.int64)
        yield as_rows(events(config, numbers))


def is_person(event: Row) -> bool:
    """Whether an event is a person."""
    return bool(event["event_type"] == PERSON)


def is_auction(event: Row) -> bool:
    """Whether an event is an auction."""
    return bool(event["event_type"] == AUCTION)


def is_bid(event: Row) -> bool:
    """Whether an event is a bid."""
    return bool(event["event_type"] == BID)


def bid_of(event: Row) -> Row:
    """The bid of an event."""
    bid: Row = event["bid"]
    return bid


def q0(bid: Row) -> Row:
    """The bid with five of its fields."""
    return {name: bid[name] for name in _PRICED}


def q1(bid: Row) -> Row:
    """The bid with its price in euros."""
    return {**q0(bid), "price": bid["price"] * _EURO}


def q2_chooses(bid: Row) -> bool:
    """Whether query 2 selects the bid's auction."""
    return bool(bid["auction"] % 123 == 0)


def q2(bid: Row) -> Row:
    """The auction and the price."""
    return {"auction": bid["auction"], "price": bid["price"]}


def q17(before: Row | None, bid: Row) -> Row:
    """The counts and prices of an auction's bids on a day, updated with one bid."""
    price = bid["price"]
    row = before or {"total_bids": 0, "rank1_bids": 0, "rank2_bids": 0, "rank3_bids": 0, "sum_price": 0}
    total, whole = row["total_bids"] + 1, row["sum_price"] + price
    return {
        "auction": bid["auction"],
        "day": f"{bid['dateTime']:%Y-%m-%d}",
        "total_bids": total,
        "rank1_bids": row["rank1_bids"] + (price < 10_000),
        "rank2_bids": row["rank2_bids"] + (10_000 <= price < 1_000_000),
        "rank3_bids": row["rank3_bids"] + (price >= 1_000_000),
        "min_price": min(price, row.get("min_price", price)),
        "max_price": max(price, row.get("max_price", price)),
        "avg_price": whole // total,
        "sum_price": whole,
    }


def key_of_q17(bid: Row) -> str:
    """The auction and the day."""
    return f"{bid['auction']} {bid['dateTime']:%Y-%m-%d}"


def q22(bid: Row) -> Row:
    """The bid with the folders of its URL."""
    dir1, dir2, dir3 = bid["url"].split("/")[3:6]
    chosen = {name: bid[name] for name in ("auction", "bidder", "price", "channel")}
    return {**chosen, "dir1": dir1, "dir2": dir2, "dir3": dir3}


def newest(rows: list[Row], key: tuple[str, ...]) -> list[Row]:
    """The last row of each key."""
    return list({tuple(row[name] for name in key): row for row in rows}.values())
