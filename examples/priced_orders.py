"""Joins orders from PostgreSQL with prices from files, and books each change once in an Iceberg table.

    python examples/priced_orders.py postgresql://me:secret@localhost/shop --prices prices --warehouse table

The database has a table and a publication:

    CREATE TABLE orders (id bigint PRIMARY KEY, item text, quantity int);
    ALTER TABLE orders REPLICA IDENTITY FULL;
    CREATE PUBLICATION shop FOR TABLE orders;

Files of prices may come at any time, with a price and a time in milliseconds in each line:

    {"item": "tea", "since": 1796059840000, "price": 5}

The job reads all orders, and then each change. It books the quantity that a change adds or removes, with the
price that was valid when the change was committed. It runs until it is stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import (
    Checkpointing,
    FileSource,
    FixedDelay,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.iceberg import IcebergSink
from penstock.sql import PostgresCdcSource

MILLISECOND = 1_000

#: Maximum out-of-orderness of a stream, in seconds.
DELAY = 5

#: Seconds without new prices after which bookings no longer wait for the watermark of the prices.
IDLE = 10

TABLE = "shop.bookings"
SCHEMA = pa.schema(
    {
        "order": pa.int64(),
        "item": pa.string(),
        "quantity": pa.int64(),
        "at": pa.int64(),
        "price": pa.int64(),
        "amount": pa.int64(),
    }
)


def booking(change: dict[str, Any]) -> dict[str, Any]:
    """The quantity that a change adds; negative for a deleted row and for a row before its update."""
    sign = -1 if change["_change_type"] in ("delete", "update_preimage") else 1
    return {
        "order": change["id"],
        "item": change["item"],
        "quantity": sign * change["quantity"],
        "at": change["_commit_timestamp"],
    }


def with_amount(row: dict[str, Any]) -> dict[str, Any]:
    price = row["price"]
    return {
        **{name: row[name] for name in ("order", "item", "quantity", "at")},
        "price": price,
        "amount": None if price is None else row["quantity"] * price,
    }


def catalog_in(warehouse: Path) -> dict[str, str]:
    """A catalog in a file, beside the table."""
    return {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": f"file://{warehouse}"}


def priced_orders(database: str, prices: Path, warehouse: Path, idle: float = IDLE) -> StreamEnvironment:
    """Build the job."""
    warehouse.mkdir(parents=True, exist_ok=True)
    env = StreamEnvironment(
        "priced-orders",
        checkpointing=Checkpointing(every=1, storage=str(warehouse / "checkpoints")),
        restart=FixedDelay(attempts=10, delay=1),
    )
    source = PostgresCdcSource(
        database, "orders", slot="priced_orders", publication="shop", metadata=["_commit_timestamp"]
    )
    commits: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(DELAY)
    commits = commits.with_timestamp_assigner(lambda change: change["_commit_timestamp"])
    validity: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(DELAY)
    validity = validity.with_timestamp_assigner(lambda price: price["since"] * MILLISECOND).with_idleness(
        idle
    )

    orders = env.from_source("orders", source, watermarks=commits, parallelism=1)
    quotes = env.from_source("prices", FileSource.json(prices, watch=1), watermarks=validity, parallelism=1)
    (
        orders.map(booking)
        .join_temporal(quotes, on="item", id="priced")
        .map(with_amount)
        .sink("bookings", IcebergSink(TABLE, SCHEMA, catalog=catalog_in(warehouse)))
    )
    return env


def main() -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("database", help="URL of the database")
    parser.add_argument("--prices", required=True, metavar="DIR", help="folder of prices that is watched")
    parser.add_argument("--warehouse", required=True, metavar="DIR", help="folder of the table")
    options = parser.parse_args()
    prices, warehouse = Path(options.prices).resolve(), Path(options.warehouse).resolve()
    try:
        priced_orders(options.database, prices, warehouse).run()
    except PenstockError as error:
        print(f"priced_orders: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
