"""The queries of Nexmark that Structured Streaming can run, and the interval join, in Spark's SQL.

Query 10, which writes files, is left out. Structured Streaming can't run the others that are missing.
Queries 4 and 9 aggregate or rank the results of a join, without a window. Queries 6 and 19 rank rows, and 15
and 16 count distinct values. Query 12 has windows of processing time. Spark has no patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Settings of all queries.
SETTINGS: Final = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "6g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

VIEWS: Final[Mapping[str, str]] = {
    name: f"SELECT {', '.join(f'{name}.{each}' for each in columns.split())}, dateTime "
    f"FROM events WHERE event_type = {number}"
    for number, (name, columns) in enumerate(
        {
            "person": "id name emailAddress creditCard city state extra",
            "auction": "id itemName description initialBid reserve expires seller category extra",
            "bid": "auction bidder price channel url extra",
        }.items()
    )
}

_TEN: Final = "window(dateTime, '10 seconds')"

NEXMARK: Final[Mapping[str, str]] = {
    "source": "SELECT event_type, person, auction, bid, dateTime FROM events",
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q5": """
        SELECT inline(filter(counts, each -> each.num = most)) FROM (
            SELECT hop, collect_list(struct(auction, num)) AS counts, max(num) AS most FROM (
                SELECT auction, count(*) AS num, window AS hop FROM bid
                GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
            ) GROUP BY hop
        )
    """,
    "q7": f"""
        SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra FROM bid b JOIN (
            SELECT price, window_time(window) AS at
            FROM (SELECT max(price) AS price, window FROM bid GROUP BY {_TEN})
        ) m ON b.price = m.price
        AND b.dateTime >= m.at + INTERVAL 1 MICROSECOND - INTERVAL 10 SECONDS
        AND b.dateTime <= m.at + INTERVAL 1 MICROSECOND
    """,
    "q8": f"""
        SELECT p.id, p.name, p.window.start AS stime
        FROM (SELECT id, name, window FROM person GROUP BY id, name, {_TEN}) p
        JOIN (SELECT seller, window FROM auction GROUP BY seller, {_TEN}) a
        ON p.id = a.seller AND p.window = a.window
    """,
    "q11": """
        SELECT bidder, bid_count, session_window.start AS starttime, session_window.end AS endtime FROM (
            SELECT bidder, count(*) AS bid_count, session_window FROM bid
            GROUP BY bidder, session_window(dateTime, '10 seconds')
        )
    """,
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
        FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price, CASE
            WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q17": """
        SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS total_bids,
            count_if(price < 10000) AS rank1_bids,
            count_if(price >= 10000 AND price < 1000000) AS rank2_bids,
            count_if(price >= 1000000) AS rank3_bids,
            min(price) AS min_price, max(price) AS max_price, sum(price) div count(*) AS avg_price,
            sum(price) AS sum_price
        FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')
    """,
    "q18": """
        SELECT last.* FROM (
            SELECT max_by(struct(auction, bidder, price, channel, url, dateTime, extra), dateTime) AS last
            FROM bid GROUP BY bidder, auction
        )
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime,
            b.extra AS bid_extra, a.itemName, a.description, a.initialBid, a.reserve,
            a.dateTime AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
            FROM bid
        ) WHERE channel_id IS NOT NULL
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

#: Queries whose results replace earlier results of the same key, with the key's columns; the others append.
UPDATES: Final[Mapping[str, tuple[str, ...]]] = {"q17": ("auction", "day"), "q18": ("auction", "bidder")}

JOIN: Final[Mapping[str, str]] = {
    "source": "SELECT key, v, ts FROM lefts UNION ALL SELECT key, w AS v, ts FROM rights",
    "join": """
        SELECT l.key, l.v, r.w FROM lefts l JOIN rights r ON l.key = r.key
        AND l.ts BETWEEN r.ts - INTERVAL 10 SECONDS AND r.ts + INTERVAL 10 SECONDS
    """,
}
