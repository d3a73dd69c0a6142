"""An interval join: find the orders that are not paid in time, by a left join of orders and payments.

    python examples/unpaid_orders.py --output orders

A payment belongs to an order if it comes within ten minutes. An order without a payment is emitted as soon as
event time has passed its ten minutes. The program needs no timer for that. Waiting orders are state, which is
part of every checkpoint, so each order is emitted once.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock import (
    Checkpointing,
    FileSink,
    GeneratorSource,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)

SECOND = 1_000_000

#: Time in which an order must be paid.
LIMIT = timedelta(minutes=10)

#: Maximum out-of-orderness of the orders, in seconds.
DELAY = 20


def order(i: int) -> dict[str, Any]:
    """The i-th order; one per second, a little out of order."""
    return {"id": i, "second": i + i * 7919 % DELAY, "amount": i % 500 + 1}


def payment(i: int) -> dict[str, Any]:
    """The i-th payment: every fifth order is paid after more than ten minutes."""
    late = 700 if i % 5 == 0 else i * 31 % 500
    return {"order": i, "paid_at": i + i * 7919 % DELAY + late}


def second_of(row: dict[str, Any]) -> int:
    """Event time of an order or a payment, in microseconds."""
    second: int = row["second"] if "second" in row else row["paid_at"]
    return second * SECOND


def rows_of(output: Path) -> list[dict[str, Any]]:
    """The rows in the committed files."""
    files = sorted(output.glob("part-*"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Run the job and print how many orders were not paid in time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that orders are committed to")
    parser.add_argument("--orders", type=int, default=50_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "unpaid-orders",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    # A payment is generated with its order, not at its own time, so payments are further out of order.
    orders, payments = (
        env.from_source(
            name,
            GeneratorSource(row, count=options.orders),
            watermarks=WatermarkStrategy.for_bounded_out_of_orderness(delay).with_timestamp_assigner(
                second_of
            ),
            parallelism=1,
        )
        for name, row, delay in (("orders", order, DELAY), ("payments", payment, DELAY + 700))
    )
    (
        orders.join(payments, left_on="id", right_on="order", within=(0, LIMIT), how="left", id="paid").sink(
            "rows", FileSink.json(output)
        )
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"unpaid_orders: {error}", file=sys.stderr)
        return 1
    rows = rows_of(output)
    print(f"{sum(row['order'] is None for row in rows)} of {len(rows)} orders were not paid in time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
