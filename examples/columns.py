"""Columns from end to end: Parquet in, a filter, sums by shop, Parquet out; no row is a Python object.

    python examples/columns.py --output revenue

Sales are generated as Parquet files. The job reads them as Arrow batches, drops returns, and keeps a running
revenue for each shop. Each committed record is an updated total of its shop. Then pyarrow computes the totals
of the same files, and the example compares both.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock import Checkpointing, DataStream, FileSink, FileSource, PenstockError, StreamEnvironment
from penstock.aggregates import Count, Max, Sum

SHOPS = 50


def write_sales(folder: Path, rows: int, files: int = 4) -> None:
    """Write files of sales; about one sale in ten is a return, which has negative cents."""
    folder.mkdir(parents=True)
    draws = np.random.default_rng(1)
    for number in range(files):
        count = rows // files
        cents = draws.integers(1, 10_000, count)
        sales = pa.table(
            {
                "shop": [f"shop {shop}" for shop in draws.integers(0, SHOPS, count)],
                "cents": np.where(draws.random(count) < 0.1, -cents, cents),
            }
        )
        pq.write_table(sales, folder / f"sales-{number}.parquet")


def revenue(sales: DataStream[Any]) -> DataStream[dict[str, Any]]:
    """Running totals of each shop."""
    paid = sales.filter(pc.field("cents") > 0)
    return paid.key_by("shop").aggregate("revenue", cents=Sum("cents"), sales=Count(), largest=Max("cents"))


def last_totals(folder: Path) -> dict[str, tuple[int, int, int]]:
    """The last total of each shop: the row that counts the most sales."""
    rows = ds.dataset([str(file) for file in folder.glob("part-*")], format="parquet").to_table().to_pylist()
    totals: dict[str, tuple[int, int, int]] = {}
    for row in sorted(rows, key=lambda row: row["sales"]):
        totals[row["shop"]] = row["cents"], row["sales"], row["largest"]
    return totals


def totals_of(files: Path) -> dict[str, tuple[int, int, int]]:
    """The totals of all sales except returns, computed by pyarrow."""
    paid = ds.dataset(str(files)).to_table(filter=pc.field("cents") > 0)
    grouped = paid.group_by("shop").aggregate([("cents", "sum"), ("cents", "count"), ("cents", "max")])
    return {
        row["shop"]: (row["cents_sum"], row["cents_count"], row["cents_max"]) for row in grouped.to_pylist()
    }


def main() -> int:
    """Generate sales, run the job, and compare the totals."""
    parser = argparse.ArgumentParser(description="Revenue of shops, in columns.")
    parser.add_argument("--output", type=Path, required=True, help="a folder that does not exist yet")
    parser.add_argument("--sales", type=int, default=2_000_000, help="default 2,000,000")
    given = parser.parse_args()
    files, results = given.output / "sales", given.output / "totals"
    write_sales(files, given.sales)
    env = StreamEnvironment(
        "revenue",
        parallelism=2,
        checkpointing=Checkpointing(every=1, storage=str(given.output / "checkpoints")),
    )
    sales = env.from_source("sales", FileSource.parquet(f"{files}/*.parquet", batch_format="arrow"))
    revenue(sales).sink("totals", FileSink.parquet(results))
    try:
        env.run()
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    found, right = last_totals(results), totals_of(files)
    print(f"{len(found)} shops; the totals are {'those of pyarrow' if found == right else 'WRONG'}")
    return 0 if found == right else 1


if __name__ == "__main__":
    sys.exit(main())
