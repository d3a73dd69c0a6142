"""Trades joined with quotes by time in all strategies, and as versions that end, over rows."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from penstock import DataStream, StreamEnvironment, WatermarkStrategy

SECOND = 1_000_000
TOLERANCE = 6

Row = dict[str, Any]
Input = tuple[list[Row], list[Row]]

STRATEGIES = ("backward", "forward", "nearest")


def make_input(random: Random) -> Input:
    def rows(count: int, name: str) -> list[Row]:
        return [
            {
                "share": random.choice(["A", "B", "C", None]),
                name: n,
                "at": (2 * n + random.randrange(4)) * SECOND,
            }
            for n in range(count)
        ]

    return rows(30, "trade"), rows(30, "quote")


def timed(env: StreamEnvironment, name: str, rows: list[Row]) -> DataStream[Row]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(4)
    strategy = strategy.with_timestamp_assigner(lambda row: row["at"])
    collected = env.from_collection(name, rows, parallelism=1)
    return collected.assign_timestamps_and_watermarks(strategy, parallelism=1)


def ends(quote: Row) -> bool:
    return bool(quote["quote"] % 4 == 0)


def numbers(row: Row) -> tuple[Any, Any, Any]:
    return row["share"], row.get("trade"), row.get("quote")


def build(env: StreamEnvironment, records: Input) -> Mapping[str, DataStream[Any]]:
    trades = timed(env, "trades", records[0]).key_by("share")
    quotes = timed(env, "quotes", records[1]).key_by("share")
    asof = {
        strategy: trades.join_asof(quotes, strategy=strategy, tolerance=TOLERANCE, id=f"{strategy}-join").map(
            numbers
        )
        for strategy in STRATEGIES
    }
    temporal = trades.join_temporal(quotes, deleted=ends, how="inner", id="temporal-join")
    return {**asof, "temporal": temporal.map(numbers)}


def expected(records: Input) -> Mapping[str, list[Any]]:
    results: dict[str, list[Any]] = {name: [] for name in (*STRATEGIES, "temporal")}
    for trade in records[0]:
        at, share = trade["at"], trade["share"]
        own = [quote for quote in records[1] if share is not None and quote["share"] == share]
        # Of quotes with one timestamp, the last one counts.
        back = max((q for q in own if q["at"] <= at), key=lambda q: (q["at"], q["quote"]), default=None)
        ahead = min((q for q in own if q["at"] >= at), key=lambda q: (q["at"], -q["quote"]), default=None)
        if back is not None and not ends(back):
            results["temporal"].append((share, trade["trade"], back["quote"]))
        near = TOLERANCE * SECOND
        back = None if back is None or at - back["at"] > near else back
        ahead = None if ahead is None or ahead["at"] - at > near else ahead
        nearest = back or ahead
        if back is not None and ahead is not None:
            nearest = back if at - back["at"] <= ahead["at"] - at else ahead
        for name, quote in zip(STRATEGIES, (back, ahead, nearest), strict=True):
            results[name].append((share, trade["trade"], None if quote is None else quote["quote"]))
    return results


#: A drain says that no quote comes any more, and then the job continues.
whole = None
