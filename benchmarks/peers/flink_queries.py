"""The queries of Nexmark and the interval join in Flink's SQL.

Flink's SQL can't run query 6, because its OVER window can't read results that change. Query 10 is left out,
because it measures a file system, and query 12, because its results depend on the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Settings of all jobs.
SETTINGS: Final = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "taskmanager.memory.managed.size": "128m",
    "rest.bind-address": "127.0.0.1",
}

_PERSON: Final = (
    "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "`dateTime` TIMESTAMP(3), extra STRING"
)
_AUCTION: Final = (
    "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "`dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING"
)
_BID: Final = (
    "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), "
    "extra STRING"
)


def _view(number: int, name: str, columns: str) -> str:
    """A view of one kind of event; its `dateTime` is the event's column, which has the watermark."""
    names = [column.split()[0] for column in columns.split(", ")]
    chosen = ", ".join(each if each == "`dateTime`" else f"{name}.{each}" for each in names)
    return f"CREATE TEMPORARY VIEW {name} AS SELECT {chosen} FROM events WHERE event_type = {number}"


def tables(options: Mapping[str, str]) -> list[str]:
    """Statements that make the tables; `options` are the options of `Events.java`, and `count`."""
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return [
        f"CREATE TEMPORARY TABLE events (event_type INT, person ROW<{_PERSON}>, auction ROW<{_AUCTION}>, "
        f"bid ROW<{_BID}>, `dateTime` TIMESTAMP(3), "
        "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND) "
        f"WITH ('connector' = 'events', 'kind' = 'nexmark', {given})",
        "CREATE TEMPORARY TABLE side_input (key BIGINT, `value` STRING) "
        "WITH ('connector' = 'events', 'kind' = 'side-input')",
        _view(0, "person", _PERSON),
        _view(1, "auction", _AUCTION),
        _view(2, "bid", _BID),
    ]


_TEN: Final = "INTERVAL '10' SECOND"

_WINNING: Final = """
    SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
        auction, bidder, price, bid_dateTime, bid_extra
    FROM (
        SELECT a.*, b.auction, b.bidder, b.price, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,
            ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime` ASC) AS place
        FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
    ) WHERE place = 1
"""

_COUNTS: Final = ", ".join(
    f"COUNT({what}){condition} AS {rank}_{name}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
    for rank, condition in (
        ("total", ""),
        ("rank1", " FILTER (WHERE price < 10000)"),
        ("rank2", " FILTER (WHERE price >= 10000 AND price < 1000000)"),
        ("rank3", " FILTER (WHERE price >= 1000000)"),
    )
)

_DAY: Final = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"

_HOPS: Final = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
"""


def _tumbling(table: str, columns: str) -> str:
    windows = f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(`dateTime`), {_TEN}))"
    rest = "window_start, window_end"
    return f"SELECT {columns}, {rest} FROM {windows} GROUP BY {columns}, {rest}"


def _pattern(measures: str, skip: str, pattern: str, define: str, within: str = "") -> str:
    return (
        "SELECT * FROM bid MATCH_RECOGNIZE (PARTITION BY auction, bidder ORDER BY `dateTime` "
        f"MEASURES {measures} ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} "
        f"DEFINE {define})"
    )


_CHEAP: Final = (
    "FIRST(C.`dateTime`) AS start_tstamp, LAST(C.`dateTime`) AS end_tstamp, AVG(C.price) AS avg_price"
)

NEXMARK: Final[Mapping[str, str]] = {
    "source": "SELECT event_type, person, auction, bid, `dateTime` FROM events",
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category AS id, AVG(price) AS final FROM (
            SELECT a.id, a.category, MAX(b.price) AS price
            FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
            GROUP BY a.id, a.category
        ) GROUP BY category
    """,
    "q5": f"""
        SELECT c.auction, c.num FROM ({_HOPS}) c JOIN (
            SELECT MAX(num) AS most, window_start, window_end FROM ({_HOPS})
            GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most
    """,
    "q7": f"""
        SELECT b.auction, b.bidder, b.price, b.`dateTime`, b.extra FROM bid b JOIN (
            SELECT MAX(price) AS price, window_time
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), {_TEN}))
            GROUP BY window_start, window_end, window_time
        ) m ON b.price = m.price AND b.`dateTime`
            BETWEEN m.window_time - INTERVAL '9.999' SECOND AND m.window_time + INTERVAL '0.001' SECOND
    """,
    "q8": f"""
        SELECT p.id, p.name, p.window_start AS stime
        FROM ({_tumbling("person", "id, name")}) p JOIN ({_tumbling("auction", "seller")}) a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
    """,
    "q9": _WINNING,
    "q11": f"""
        SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), {_TEN}))
        GROUP BY bidder, window_start, window_end
    """,
    "q13": """
        SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
        FROM (SELECT *, MOD(auction, 10000) AS key, PROCTIME() AS p_time FROM bid) b
        JOIN side_input FOR SYSTEM_TIME AS OF b.p_time s ON b.key = s.key
    """,
    "q14": """
        SELECT auction, bidder, 0.908 * price AS price, CASE
            WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
            `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q15": f"SELECT {_DAY} AS `day`, {_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`, {_COUNTS}
        FROM bid GROUP BY channel, {_DAY}
    """,
    "q17": f"""
        SELECT auction, {_DAY} AS `day`, COUNT(*) AS total_bids,
            COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
            COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
            COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
            MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price,
            SUM(price) AS sum_price
        FROM bid GROUP BY auction, {_DAY}
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place
            FROM bid
        ) WHERE place <= 1
    """,
    "q19": """
        SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid
        ) WHERE place <= 10
    """,
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime` AS bid_dateTime,
            b.extra AS bid_extra, a.itemName, a.description, a.initialBid, a.reserve,
            a.`dateTime` AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10
    """,
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel, CASE LOWER(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
            FROM bid
        ) WHERE channel_id IS NOT NULL
    """,
    "q22": """
        SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
            SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
        FROM bid
    """,
    "q23": """
        SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra, p.id AS person_id, p.name,
            p.emailAddress, p.creditCard, p.city, p.state, p.extra AS person_extra, a.itemName,
            a.description, a.initialBid, a.reserve, a.`dateTime` AS auction_dateTime, a.expires, a.seller,
            a.category, a.extra AS auction_extra
        FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
    """,
    "cep_q0": _pattern(
        "S.`dateTime` AS start_tstamp, LAST(D.`dateTime`) AS bottom_tstamp, U.`dateTime` AS end_tstamp",
        "TO LAST U",
        "S D+ U",
        "D AS (LAST(D.price, 1) IS NULL AND D.price < S.price) OR D.price < LAST(D.price, 1), "
        "U AS U.price > LAST(D.price, 1)",
    ),
    "cep_q1": _pattern(_CHEAP, "PAST LAST ROW", "C+ X", "C AS AVG(CAST(C.price AS DOUBLE)) < 10000"),
    "cep_q2": _pattern(_CHEAP, "TO NEXT ROW", "C+ X", "C AS AVG(CAST(C.price AS DOUBLE)) < 10000"),
    "cep_q3": _pattern(
        "L.`dateTime` AS drop_time, F.price - L.price AS drop_diff",
        "PAST LAST ROW",
        "F H* L",
        "H AS H.price > F.price - 50, L AS L.price < F.price - 50",
        "WITHIN INTERVAL '5' SECOND",
    ),
}


def join_tables(count: int, keys: int, event_rate: int, base_time: int) -> list[str]:
    """Statements that make both sides of the join."""
    return [
        f"CREATE TEMPORARY TABLE {side} (n BIGINT, key AS MOD(n * {factor}, {keys}), {payload} AS n, "
        f"ts AS TO_TIMESTAMP_LTZ({base_time} + n * 1000 / {event_rate}, 3), WATERMARK FOR ts AS ts) "
        f"WITH ('connector' = 'events', 'kind' = 'numbers', 'count' = '{count}')"
        for side, payload, factor in (("lefts", "v", 7919), ("rights", "w", 104729))
    ]


JOIN: Final[Mapping[str, str]] = {
    "source": "SELECT key, v AS v, ts FROM lefts UNION ALL SELECT key, w AS v, ts FROM rights",
    "join": """
        SELECT l.key, l.v, r.w FROM lefts l JOIN rights r ON l.key = r.key
        AND l.ts BETWEEN r.ts - INTERVAL '10' SECOND AND r.ts + INTERVAL '10' SECOND
    """,
}
