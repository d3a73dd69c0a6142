"""Runs queries in Flink SQL, one job after another; a program for the Python of Flink's environment.

    python flink_job.py '{"options": {...}, "jobs": [["q0", 1000]], "checkpoint_every": 1.0, ...}'

Its argument is JSON: `options` of Nexmark's events, or `join` with the data of the interval join. `jobs` are
queries with their numbers of events. With `collect` the results are printed, else they are discarded.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import flink_queries
from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment
from report import Ended, busy_seconds


def main(given: dict[str, Any]) -> None:
    """Run the jobs."""
    for query, count in given["jobs"]:
        settings = EnvironmentSettings.in_streaming_mode()
        env = TableEnvironment.create(settings)
        checkpoints = {
            "execution.checkpointing.interval": f"{round(given['checkpoint_every'] * 1000)} ms",
            "execution.checkpointing.dir": f"file://{given['folder']}",
        }
        for name, value in {**flink_queries.SETTINGS, **checkpoints}.items():
            env.get_config().set(name, value)
        if "join" in given:
            statements = flink_queries.join_tables(count // 2, **given["join"])
            sql = flink_queries.JOIN[query]
        else:
            statements = flink_queries.tables({**given["options"], "count": str(count)})
            sql = flink_queries.NEXMARK[query]
        for statement in statements:
            env.execute_sql(statement)
        begun, busy = time.monotonic(), busy_seconds()
        try:
            rows = collected(env, sql) if given.get("collect") else None
            if rows is None:
                env.sql_query(sql).execute_insert(TableDescriptor.for_connector("blackhole").build()).wait()
        except Exception as error:  # a query that a peer can't run is also a result
            Ended(query, count, failure=reason(error)).say()
            continue
        Ended(query, count, time.monotonic() - begun, busy_seconds() - busy, rows).say()


def reason(error: Exception) -> str:
    """The innermost cause, without Java's stack traces."""
    lines = str(error).splitlines()
    causes = [line for line in lines if line.startswith("Caused by: ")] or lines[:2]
    return causes[-1][:500]


def collected(env: TableEnvironment, sql: str) -> list[dict[str, Any]]:
    """The final rows, after all changes are applied."""
    table = env.sql_query(sql)
    names = table.get_schema().get_field_names()
    rows: Counter[tuple[Any, ...]] = Counter()
    with table.execute().collect() as results:
        for row in results:
            is_new = row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
            rows[tuple(row)] += 1 if is_new else -1
    return [dict(zip(names, row, strict=True)) for row in rows.elements()]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
