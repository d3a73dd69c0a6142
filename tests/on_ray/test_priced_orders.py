"""The example of orders from PostgreSQL and prices from a folder, killed on the way and counted by hand.

Spark, DuckDB, pyiceberg and `IcebergSource` read the table.
"""

from __future__ import annotations

import json
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from jobs.driving import after_checkpoints, eventually, finish, kill_subtask, submit, wait_until
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from ray import cloudpickle
from serving.iceberg_by_spark import rows_by_spark
from serving.postgres import PostgresServer, postgres_server

from penstock.iceberg import IcebergSource
from penstock.runtime.testing.source_harness import SourceHarness

_EXAMPLES = str(Path(__file__).resolve().parents[2] / "examples")
if _EXAMPLES not in sys.path:
    sys.path.append(_EXAMPLES)

import priced_orders  # noqa: E402 (the path comes first)

# The cluster has no folder of examples.
cloudpickle.register_pickle_by_value(priced_orders)

pytestmark = pytest.mark.usefixtures("ray_cluster")

ORDERS, ITEMS = 400, 7


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


class Prices:
    """A folder to which files are added, and the prices that were valid at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since: list[int] = []
        folder.mkdir()

    def add(self, since: int) -> None:
        """Set the prices of all items from a time on."""
        number = len(self._since)
        self._since.append(since)
        lines = [{"item": f"item {n}", "since": since, "price": self._price(number, n)} for n in range(ITEMS)]
        hidden = self._folder / f"_{number}.jsonl"
        hidden.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        hidden.rename(self._folder / f"{number}.jsonl")

    def at(self, item: str, moment: int) -> int:
        return self._price(bisect_right(self._since, moment // 1000) - 1, int(item.removeprefix("item ")))

    def _price(self, number: int, item: int) -> int:
        return 100 * number + item


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


def bookings(warehouse: Path) -> list[dict[str, Any]]:
    catalog = load_catalog("default", **priced_orders.catalog_in(warehouse))
    try:
        rows: list[dict[str, Any]] = catalog.load_table(priced_orders.TABLE).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    return rows


def quantities(rows: list[dict[str, Any]]) -> dict[int, int]:
    """The quantity of each order that exists."""
    found: Counter[int] = Counter()
    for row in rows:
        found[row["order"]] += row["quantity"]
    return {order: quantity for order, quantity in found.items() if quantity}


@dataclass(frozen=True)
class Booked:
    """The table of a job that was killed on the way.

    Attributes:
        expected: Quantity of each order that the database has at the end.
    """

    warehouse: Path
    prices: Prices
    expected: dict[int, int]
    restarts: int


@pytest.fixture(scope="module")
def booked(server: PostgresServer, ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Booked:
    folder = tmp_path_factory.mktemp("priced")
    server.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text, quantity int)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "CREATE PUBLICATION shop FOR TABLE orders",
        f"INSERT INTO orders SELECT n, 'item ' || n % {ITEMS}, 1 + n % 5 FROM generate_series(1, {ORDERS}) n",
    )
    prices, warehouse = Prices(folder / "prices"), folder / "warehouse"
    prices.add(0)
    # Only new prices move event time, so each order waits for those that may be valid for it.
    job = submit(priced_orders.priced_orders(server.url, folder / "prices", warehouse, idle=3600))

    def is_followed() -> bool:
        """Whether the snapshot is read."""
        found: list[Any] = server.run("SELECT 1 FROM pg_replication_slots WHERE active")
        return len(found) == 1

    for number in range(3):
        eventually("the stream is read", is_followed)
        after_checkpoints(job, job.report().statistics.completed_checkpoints + 2)
        prices.add(milliseconds())
        server.run(
            f"UPDATE orders SET quantity = quantity + 1 WHERE id % 3 = {number}",
            f"DELETE FROM orders WHERE id % 10 = {number}",
            f"INSERT INTO orders SELECT n, 'item 3', 2 FROM generate_series({1000 + number * 50}, "
            f"{1049 + number * 50}) AS n",
        )
        if number:
            eventually("the reader runs", lambda: bool(readers(job)))
            kill_subtask(job, readers(job)[0].vertex)
            wait_until(job, "a restart", lambda report: report.statistics.restarts >= number)  # noqa: B023
    # A change and prices that are later than all others.
    server.run("INSERT INTO orders VALUES (5000, 'item 1', 0)")
    prices.add(milliseconds() + 3_600_000)
    expected = dict(server.run("SELECT id, quantity FROM orders WHERE quantity > 0"))

    def all_booked() -> bool:
        # Event time follows the commits, too.
        server.run("UPDATE orders SET quantity = 0 WHERE id = 5000")
        return quantities(bookings(warehouse)) == expected

    eventually("all bookings", all_booked)
    job.stop()
    result = finish(job)
    return Booked(warehouse, prices, expected, result.statistics.restarts)


def test_each_change_is_booked_once_with_its_price_though_the_reader_is_killed(booked: Booked) -> None:
    assert booked.restarts >= 1
    rows, prices = bookings(booked.warehouse), booked.prices
    assert quantities(rows) == booked.expected
    assert [row["price"] for row in rows] == [prices.at(row["item"], row["at"]) for row in rows]
    assert all(row["amount"] == row["quantity"] * row["price"] for row in rows)
    assert len({row["price"] // 100 for row in rows}) > 1, "prices have changed meanwhile"


def counted(rows: Sequence[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in priced_orders.SCHEMA.names) for row in rows)


def test_duckdb_and_the_source_read_the_same_bookings_as_the_library(booked: Booked) -> None:
    catalog = priced_orders.catalog_in(booked.warehouse)
    expected = counted(bookings(booked.warehouse))
    table = load_catalog("default", **catalog).load_table(priced_orders.TABLE)
    files = [path.removeprefix("file://") for path in table.inspect.files().column("file_path").to_pylist()]
    names = ", ".join(f'"{name}"' for name in priced_orders.SCHEMA.names)
    assert Counter(duckdb.sql(f"SELECT {names} FROM read_parquet($1)", params=[files]).fetchall()) == expected
    with SourceHarness(IcebergSource(priced_orders.TABLE, catalog=catalog)) as harness:
        assert counted(harness.read_all()) == expected


def test_each_snapshot_is_that_of_one_checkpoint_and_contains_the_one_before(booked: Booked) -> None:
    catalog = load_catalog("default", **priced_orders.catalog_in(booked.warehouse))
    table = catalog.load_table(priced_orders.TABLE)
    summaries = [each.summary.additional_properties for each in table.snapshots() if each.summary]
    checkpoints = [int(each["penstock.checkpoint"]) for each in summaries]
    assert checkpoints == sorted(set(checkpoints))
    before: Counter[tuple[Any, ...]] = Counter()
    for snapshot in table.snapshots():
        rows = counted(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist())
        assert before < rows
        before = rows


@pytest.mark.table_jars
def test_spark_reads_each_booking_once_in_each_snapshot(booked: Booked) -> None:
    catalog = priced_orders.catalog_in(booked.warehouse)
    table = load_catalog("default", **catalog).load_table(priced_orders.TABLE)
    by_library = [
        counted(table.scan(snapshot_id=each.snapshot_id).to_arrow().to_pylist()) for each in table.snapshots()
    ]
    by_spark = rows_by_spark("default", catalog, priced_orders.TABLE)
    assert [counted(rows) for rows in by_spark] == by_library
    assert quantities(by_spark[-1]) == booked.expected


def readers(job: Any) -> list[Any]:
    """The subtasks that read orders and run now."""
    running = [each.subtask for each in job.processes() if each.subtask is not None]
    return [each for each in running if "orders" in each.vertex]
