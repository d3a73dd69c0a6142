"""Program for Flink's Python environment: sums by user and second in Flink SQL, from Kafka to Kafka.

Its argument is JSON: `servers`, `settings` of Flink, `jars` of its connector, and `jobs` with a name and a
number of orders. A job reads `orders-COUNT` and writes `NAME-COUNT`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from flink_job import reason
from pyflink.table import EnvironmentSettings, TableEnvironment
from report import Ended, busy_seconds


def statements(servers: str, name: str, count: int) -> tuple[str, str, str]:
    """The tables, and the query."""
    common = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
    return (
        "CREATE TEMPORARY TABLE orders (id BIGINT, `user` STRING, amount BIGINT, weight DOUBLE, `at` BIGINT, "
        "paid BOOLEAN, note STRING, ts AS TO_TIMESTAMP_LTZ(`at` / 1000, 3), WATERMARK FOR ts AS ts) "
        f"WITH ({common}, 'topic' = 'orders-{count}', 'scan.startup.mode' = 'earliest-offset', "
        f"'scan.bounded.mode' = 'latest-offset', 'properties.group.id' = '{name}')",
        "CREATE TEMPORARY TABLE sums (`user` STRING, `second` BIGINT, total BIGINT) "
        f"WITH ({common}, 'topic' = '{name}-{count}', 'sink.delivery-guarantee' = 'exactly-once', "
        f"'sink.transactional-id-prefix' = '{name}-{count}', 'properties.transaction.timeout.ms' = '600000')",
        "INSERT INTO sums SELECT `user`, UNIX_TIMESTAMP(CAST(window_start AS STRING)), SUM(amount) "
        "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
        "GROUP BY `user`, window_start, window_end",
    )


def run(given: dict[str, Any], name: str, count: int) -> Ended:
    """Run a job to the end of its topic."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for setting, value in given["settings"].items():
        env.get_config().set(setting, value)
    env.get_config().set("pipeline.jars", ";".join(f"file://{jar}" for jar in given["jars"]))
    orders, sums, query = statements(given["servers"], name, count)
    begun, busy = time.monotonic(), busy_seconds()
    try:
        env.execute_sql(orders)
        env.execute_sql(sums)
        env.execute_sql(query).wait()
    except Exception as error:  # a query that a peer can't run is also a result
        return Ended(name, count, failure=reason(error))
    return Ended(name, count, time.monotonic() - begun, busy_seconds() - busy)


if __name__ == "__main__":
    argument = json.loads(sys.argv[1])
    for job in argument["jobs"]:
        run(argument, *job).say()
