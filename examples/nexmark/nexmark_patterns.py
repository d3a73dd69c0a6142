"""The suite's queries that find patterns in the bids of one bidder on one auction.

The conditions of a pattern take rows. If the source makes columns, the bids are selected and sent as columns.
Only the fields that a pattern needs become rows then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import nexmark_columns
from nexmark_events import NexmarkConfig
from nexmark_rows import Row, Rows, bids

from penstock import DataStream
from penstock.patterns import AfterMatchSkipStrategy, Pattern

Match = dict[str, list[Row]]
Query = Callable[[Rows, NexmarkConfig], DataStream[Row]]


def _found(bids: Rows, pattern: Pattern[Row], emit: Callable[[Match], Row]) -> Rows:
    return bids.key_by(["auction", "bidder"]).pattern(pattern).select("found", emit)


def _prices(match: Match, step: str) -> list[int]:
    return [bid["price"] for bid in match[step]]


def _of(bid: Row, **values: Any) -> Row:
    return {"auction": bid["auction"], "bidder": bid["bidder"], **values}


def _falls(bid: Row, match: Match) -> bool:
    return bool(bid["price"] < (_prices(match, "start") + _prices(match, "down"))[-1])


def _rises(bid: Row, match: Match) -> bool:
    """Whether the price is above the second to last falling price."""
    down = _prices(match, "down")
    return len(down) > 1 and bool(bid["price"] > down[-2])


def _period(match: Match) -> Row:
    (start,), down, (up,) = match["start"], match["down"], match["up"]
    return _of(
        start,
        start_tstamp=start["dateTime"],
        bottom_tstamp=down[-1]["dateTime"],
        end_tstamp=up["dateTime"],
    )


def cep_q0(bids: Rows, config: NexmarkConfig) -> Rows:
    """Periods of falling prices; the end of a period may begin the next one."""
    pattern: Pattern[Row] = Pattern.begin("start", skip=AfterMatchSkipStrategy.skip_to_last("up"))
    pattern = pattern.next("down", where=_falls).one_or_more().consecutive().greedy()
    return _found(bids, pattern.next("up", where=_rises), _period)


def _is_cheap(bid: Row, match: Match) -> bool:
    prices = [*_prices(match, "cheap"), bid["price"]]
    return sum(prices) / len(prices) < 10_000


def _cheap_period(match: Match) -> Row:
    cheap, prices = match["cheap"], _prices(match, "cheap")
    return _of(
        cheap[0],
        start_tstamp=cheap[0]["dateTime"],
        end_tstamp=cheap[-1]["dateTime"],
        avg_price=sum(prices) // len(prices),
    )


def _cheap_periods(bids: Rows, skip: AfterMatchSkipStrategy) -> Rows:
    pattern: Pattern[Row] = Pattern.begin("cheap", where=_is_cheap, skip=skip)
    return _found(bids, pattern.one_or_more().consecutive().greedy().next("end"), _cheap_period)


def cep_q1(bids: Rows, config: NexmarkConfig) -> Rows:
    """Longest periods with a low mean price; a period begins after the previous one has ended."""
    return _cheap_periods(bids, AfterMatchSkipStrategy.skip_past_last_event())


def cep_q2(bids: Rows, config: NexmarkConfig) -> Rows:
    """The longest period with a low mean price that begins with each bid."""
    return _cheap_periods(bids, AfterMatchSkipStrategy.skip_to_next())


def cep_q3(bids: Rows, config: NexmarkConfig) -> Rows:
    """Prices that drop by more than 50 within five seconds."""
    pattern: Pattern[Row] = Pattern.begin("first", skip=AfterMatchSkipStrategy.skip_past_last_event())
    pattern = pattern.next("high", where=lambda bid, match: bid["price"] > match["first"][0]["price"] - 50)
    pattern = pattern.one_or_more().consecutive().greedy().optional()
    pattern = pattern.next("low", where=lambda bid, match: bid["price"] < match["first"][0]["price"] - 50)

    def drop(match: Match) -> Row:
        (first,), (low,) = match["first"], match["low"]
        return _of(low, drop_time=low["dateTime"], drop_diff=first["price"] - low["price"])

    return _found(bids, pattern.within(timedelta(seconds=5)), drop)


_PATTERNS: Final = (cep_q0, cep_q1, cep_q2, cep_q3)


def _of_rows(query: Query) -> Query:
    return lambda events, config: query(bids(events), config)


def _of_columns(query: Query) -> Query:
    needed = "auction", "bidder", "price", "dateTime"
    return lambda events, config: query(nexmark_columns.bids(events).select(*needed), config)


QUERIES: Final[Mapping[str, Query]] = {query.__name__: _of_rows(query) for query in _PATTERNS}

#: The same over columns of the source.
COLUMN_QUERIES: Final[Mapping[str, Query]] = {query.__name__: _of_columns(query) for query in _PATTERNS}
