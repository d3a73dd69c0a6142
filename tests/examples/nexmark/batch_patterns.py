"""The patterns of Nexmark in plain SQL, without `MATCH_RECOGNIZE`.

In `numbered` the bids of a bidder on an auction have numbers in the order of time. The last bids of a pair
may form a match that never ends. It holds back those that begin behind it, as it does in Flink.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NUMBERED: Final = """
    numbered AS (
        SELECT auction, bidder, price, dateTime,
            row_number() OVER (PARTITION BY auction, bidder ORDER BY dateTime) AS n
        FROM bid
    )
"""

#: Runs of falling prices, as long as they get.
_RUNS: Final = f"""
    WITH {_NUMBERED},
    marked AS (
        SELECT *, CAST(coalesce(price >= lag(price) OVER pair, true) AS INTEGER) AS is_first,
            lag(price) OVER pair AS before, lead(price) OVER pair AS after,
            lead(dateTime) OVER pair AS next_at
        FROM numbered WINDOW pair AS (PARTITION BY auction, bidder ORDER BY n)
    ),
    runs AS (
        SELECT *, sum(is_first) OVER (PARTITION BY auction, bidder ORDER BY n) AS run FROM marked
    )
    SELECT auction, bidder, min(dateTime) AS start_tstamp, max(dateTime) AS bottom_tstamp,
        arg_max(next_at, n) AS end_tstamp
    FROM runs GROUP BY auction, bidder, run
    HAVING count(*) >= 3 AND arg_max(after, n) > arg_max(before, n)
"""

#: For each bid that is cheap, the first later one with which the mean is no longer low.
_CHEAP: Final = f"""
    {_NUMBERED},
    means AS (
        SELECT a.auction, a.bidder, a.n AS first, b.n AS last, avg(b.price) OVER upto >= 10000 AS is_over,
            lag(b.dateTime) OVER upto AS end_tstamp, a.dateTime AS start_tstamp,
            sum(b.price) OVER upto - b.price AS total
        FROM numbered a JOIN numbered b ON a.auction = b.auction AND a.bidder = b.bidder AND b.n >= a.n
        WHERE a.price < 10000
        WINDOW upto AS (PARTITION BY a.auction, a.bidder, a.n ORDER BY b.n)
    ),
    matches AS (
        SELECT auction, bidder, first, start_tstamp,
            min(last) FILTER (is_over) AS last,
            arg_min(end_tstamp, last) FILTER (is_over) AS end_tstamp,
            arg_min(total, last) FILTER (is_over) AS total
        FROM means GROUP BY auction, bidder, first, start_tstamp
    )
"""
_CHEAP_ROW: Final = (
    "auction, bidder, start_tstamp, end_tstamp, CAST(total // (last - first) AS BIGINT) AS avg_price"
)

#: Matches that follow each other: each begins behind the one before.
_APART: Final = """
    apart AS (
        SELECT auction, bidder, min(first) AS first FROM matches GROUP BY auction, bidder
        UNION ALL
        SELECT auction, bidder, (
            SELECT min(n.first) FROM matches n
            WHERE n.auction = m.auction AND n.bidder = m.bidder AND n.first > m.last
        ) FROM apart JOIN matches m USING (auction, bidder, first) WHERE m.last IS NOT NULL
    )
"""

#: For each bid the first later one that is not above it, less 50.
_DROPS: Final = f"""
    {_NUMBERED},
    matches AS (
        SELECT a.auction, a.bidder, a.n AS first, b.n AS last, b.dateTime AS drop_time,
            a.price - b.price AS drop_diff
        FROM numbered a JOIN numbered b ON a.auction = b.auction AND a.bidder = b.bidder AND b.n > a.n
        WHERE b.price <= a.price - 50
        QUALIFY row_number() OVER (PARTITION BY a.auction, a.bidder, a.n ORDER BY b.n) = 1
            AND b.price < a.price - 50 AND b.dateTime - a.dateTime < INTERVAL 5 SECOND
    )
"""

SQL: Final[Mapping[str, str]] = {
    "cep_q0": _RUNS,
    "cep_q1": f"""
        WITH RECURSIVE {_CHEAP}, {_APART}
        SELECT {_CHEAP_ROW} FROM matches JOIN apart USING (auction, bidder, first) WHERE last IS NOT NULL
    """,
    "cep_q2": f"""
        WITH {_CHEAP}
        SELECT {_CHEAP_ROW} FROM matches
        QUALIFY count(*) FILTER (last IS NULL) OVER (PARTITION BY auction, bidder ORDER BY first) = 0
    """,
    "cep_q3": f"""
        WITH RECURSIVE {_DROPS}, {_APART}
        SELECT auction, bidder, drop_time, drop_diff FROM matches JOIN apart USING (auction, bidder, first)
    """,
}
