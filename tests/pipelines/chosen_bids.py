"""The first bid of each bidder, the newest and the two highest of each auction, with keys of functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment

#: Number, auction, cents.
Bid = tuple[int, str, int]
Outputs = Mapping[str, Iterable[Any]]


def make_input(random: Random) -> list[Bid]:
    cents = random.sample(range(1000), 60)
    return [(number, random.choice("abcd"), each) for number, each in enumerate(cents)]


def build(env: StreamEnvironment, bids: list[Bid]) -> dict[str, DataStream[Any]]:
    source = env.from_collection("bids", bids)
    dicts = source.map(lambda bid: {"auction": bid[1], "cents": bid[2]})
    return {
        "auctions": source.map(lambda bid: bid[1]).dedup("auctions", str),
        "newest": source.latest_by("newest", lambda bid: bid[0], lambda bid: bid[1]),
        "highest": dicts.top_n("highest", "cents", 2, lambda bid: bid["auction"], change_kind="change"),
    }


def expected(bids: list[Bid]) -> dict[str, list[Any]]:
    auctions = sorted({bid[1] for bid in bids})
    cents = {auction: sorted(bid[2] for bid in bids if bid[1] == auction) for auction in auctions}
    return {
        "auctions": auctions,
        "newest": [max(bid for bid in bids if bid[1] == auction) for auction in auctions],
        "highest": [(auction, each) for auction in auctions for each in cents[auction][-2:]],
    }


def comparable(rows: Outputs) -> dict[str, list[Any]]:
    """The newest bid of each auction, and the bids that are inserted and not deleted."""
    newest: dict[str, Bid] = {}
    for bid in rows["newest"]:
        newest[bid[1]] = max(bid, newest.get(bid[1], bid))
    held: Counter[tuple[str, int]] = Counter()
    for row in rows["highest"]:
        held[row["auction"], row["cents"]] += 1 if row["change"] == "insert" else -1
    assert set(held.values()) <= {0, 1}, f"inserted or deleted twice: {held}"
    return {
        "auctions": list(rows["auctions"]),
        "newest": list(newest.values()),
        "highest": [each for each, count in held.items() if count],
    }
