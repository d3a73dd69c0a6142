"""A job on Ray copies a table of PostgreSQL by its changes, exactly once, though its processes are killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from jobs.driving import finish, kill_subtask, submit, wait_until
from serving.postgres import PostgresServer, postgres_server

from penstock import AdvancedConfig, Checkpointing, FixedDelay, JobConfig, StreamEnvironment
from penstock.sql import PostgresCdcSource, SqlSink

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROWS = 2_400
#: Transactions that change the table around each death.
TRANSACTIONS = 50


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


def change(url: str, numbers: range) -> None:
    """Insert, change, move and delete rows, and take some transactions back."""
    with psycopg.connect(url, autocommit=True) as connection:
        for number in numbers:
            with connection.transaction(force_rollback=number % 7 == 3):
                connection.execute("INSERT INTO orders VALUES (%s, 'new', 0)", (ROWS + number,))
                connection.execute(
                    "UPDATE orders SET changes = changes + 1 WHERE id %% 50 = %s", (number % 50,)
                )
                connection.execute("UPDATE orders SET id = -id WHERE id = %s", (5 * number,))
                connection.execute("DELETE FROM orders WHERE id = %s", (5 * number + 1,))


def copied(server: PostgresServer) -> int:
    count: int = server.run("SELECT count(*) FROM copy")[0][0]
    return count


def as_row(change: dict[str, Any]) -> dict[str, Any]:
    return {"kind": change["_change_type"], **{name: change[name] for name in ("id", "item", "changes")}}


def test_a_table_and_its_copy_are_equal_though_the_reader_is_killed(
    server: PostgresServer, tmp_path: Path
) -> None:
    server.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text, changes int)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "CREATE PUBLICATION shop FOR TABLE orders",
        f"INSERT INTO orders SELECT n, 'item ' || n, 0 FROM generate_series(0, {ROWS - 1}) AS n",
        "CREATE TABLE copy (LIKE orders INCLUDING ALL)",
        # Each change is in it once, so it shows what comes twice, too.
        "CREATE TABLE changes (kind text, id bigint, item text, changes int)",
    )
    config = JobConfig(
        checkpointing=Checkpointing(every=0.3, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=10, delay=0.1),
        advanced=AdvancedConfig(buffer_rows=64),
    )
    env = StreamEnvironment("copy", parallelism=2, config=config)
    source = PostgresCdcSource(server.url, "orders", slot="copy", publication="shop", page_rows=100)
    changes = env.from_source("orders", source).rate_limit(1_000)
    changes.sink("copy", SqlSink(server.url, "copy", key=["id"], change_kind="_change_type"))
    changes.map(as_row).sink("changes", SqlSink(server.url, "changes"))

    job = submit(env)
    # Twice in the midst of the snapshot, and once behind it.
    for death, rows in enumerate((400, 1_000, ROWS - 5 * TRANSACTIONS)):
        wait_until(job, f"{rows} rows", lambda report: copied(server) >= rows)  # noqa: B023
        numbers = range(death * TRANSACTIONS, (death + 1) * TRANSACTIONS)
        changing = threading.Thread(target=change, args=(server.url, numbers))
        changing.start()
        kill_subtask(job, "orders")
        changing.join()
    difference = "(SELECT * FROM {0} EXCEPT ALL SELECT * FROM {1})"

    def is_equal(report: object) -> bool:
        return all(
            server.run(difference.format(*pair)) == [] for pair in (("orders", "copy"), ("copy", "orders"))
        )

    wait_until(job, "the same rows", is_equal)
    job.stop()
    result = finish(job)

    assert result.statistics.restarts >= 3
    counts = dict(server.run("SELECT kind, count(*) FROM changes GROUP BY kind"))
    assert counts["update_preimage"] == counts["update_postimage"]
    added = "SELECT id, item, changes FROM changes WHERE kind IN ('insert', 'update_postimage')"
    taken = "SELECT id, item, changes FROM changes WHERE kind IN ('delete', 'update_preimage')"
    assert server.run(f"({added} EXCEPT ALL {taken}) EXCEPT ALL SELECT * FROM orders") == []
    assert server.run(f"SELECT * FROM orders EXCEPT ALL ({added} EXCEPT ALL {taken})") == []
    assert server.run(f"{taken} EXCEPT ALL ({added})") == []
