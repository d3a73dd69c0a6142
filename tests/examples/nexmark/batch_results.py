"""The results of the queries, recomputed by DuckDB over all events at once.

Each query is SQL over the tables `person`, `auction`, `bid` and `side_input`. A row is what a receiver has in
the end: for running results the last one of each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import batch_patterns
import duckdb
import pyarrow as pa
from nexmark_events import NexmarkConfig, tables
from nexmark_side_input import side_input

_WINNING: Final = """
    SELECT a.*, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) = 1
"""

_COUNTS: Final = ", ".join(
    f"count({what}) FILTER ({condition}) AS {rank}_{name}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
    for rank, condition in (
        ("total", "true"),
        ("rank1", "price < 10000"),
        ("rank2", "price >= 10000 AND price < 1000000"),
        ("rank3", "price >= 1000000"),
    )
)

_DAY: Final = "strftime(dateTime, '%Y-%m-%d')"

#: Bids of windows of ten seconds that begin every two seconds.
_HOPS: Final = """
    SELECT bid.auction, count(*) AS num, hop
    FROM bid, unnest(range(5)) AS hops(n),
        LATERAL (SELECT epoch_ms(dateTime) // 2000 - n AS hop)
    GROUP BY bid.auction, hop
"""

#: A bid begins a session if the one before is ten seconds older, or more.
_SESSIONS: Final = """
    SELECT bidder, dateTime, sum(is_first) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
    FROM (
        SELECT bidder, dateTime, CAST(coalesce(
            dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) >= INTERVAL 10 SECOND, true
        ) AS INTEGER) AS is_first
        FROM bid
    )
"""

SQL: Final[Mapping[str, str]] = {
    **batch_patterns.SQL,
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        SELECT category AS id, CAST(sum(price) // count(*) AS BIGINT) AS final
        FROM ({_WINNING}) GROUP BY category
    """,
    "q5": f"""
        SELECT auction, num FROM ({_HOPS}) QUALIFY num = max(num) OVER (PARTITION BY hop)
    """,
    "q6": f"""
        SELECT seller, CAST(sum(price) OVER last // count(*) OVER last AS BIGINT) AS avg_price
        FROM ({_WINNING})
        WINDOW last AS (PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
    """,
    "q7": """
        SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
        FROM bid b JOIN (
            SELECT max(price) AS price, epoch_ms(dateTime) // 10000 * 10000 + 10000 AS ends
            FROM bid GROUP BY ends
        ) m ON b.price = m.price AND epoch_ms(b.dateTime) BETWEEN m.ends - 10000 AND m.ends
    """,
    "q8": """
        SELECT DISTINCT p.id, p.name, make_timestamptz(epoch_ms(p.dateTime) // 10000 * 10000000) AS stime
        FROM person p JOIN auction a
        ON p.id = a.seller AND epoch_ms(p.dateTime) // 10000 = epoch_ms(a.dateTime) // 10000
    """,
    "q9": _WINNING,
    "q10": """
        SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt,
            strftime(dateTime, '%H:%M') AS hm
        FROM bid
    """,
    "q11": f"""
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
            max(dateTime) + INTERVAL 10 SECOND AS endtime
        FROM ({_SESSIONS}) GROUP BY bidder, session
    """,
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
        FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price, CASE
            WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, len(extra) - len(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q15": f"SELECT {_DAY} AS day, {_COUNTS} FROM bid GROUP BY day",
    "q16": f"""
        SELECT channel, {_DAY} AS day, max(strftime(dateTime, '%H:%M')) AS minute, {_COUNTS}
        FROM bid GROUP BY channel, day
    """,
    "q17": f"""
        SELECT auction, {_DAY} AS day, count(*) AS total_bids,
            count(*) FILTER (price < 10000) AS rank1_bids,
            count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
            count(*) FILTER (price >= 1000000) AS rank3_bids,
            min(price) AS min_price, max(price) AS max_price,
            CAST(sum(price) // count(*) AS BIGINT) AS avg_price, CAST(sum(price) AS BIGINT) AS sum_price
        FROM bid GROUP BY auction, day
    """,
    "q18": """
        SELECT * FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1
    """,
    "q19": """
        SELECT * FROM bid
        QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime,
            b.extra AS bid_extra, a.itemName, a.description, a.initialBid, a.reserve,
            a.dateTime AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": r"""
        SELECT auction, bidder, price, channel, CASE lower(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
        FROM bid WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
    """,
    "q23": """
        SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id AS person_id, p.name,
            p.emailAddress, p.creditCard, p.city, p.state, p.extra AS person_extra, a.itemName,
            a.description, a.initialBid, a.reserve, a.dateTime AS auction_dateTime, a.expires, a.seller,
            a.category, a.extra AS auction_extra
        FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
    """,
}


def results(query: str, config: NexmarkConfig, count: int) -> list[dict[str, Any]]:
    """The rows of a query over the first `count` events."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables(config, count).items():
            connection.register(name, table)
        values = side_input()
        connection.register("side_input", pa.table({"key": list(values), "value": list(values.values())}))
        rows: list[dict[str, Any]] = connection.sql(SQL[query]).to_arrow_table().to_pylist()
        return rows
