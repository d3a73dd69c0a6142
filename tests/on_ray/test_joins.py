"""Orders and payments of two Parquet folders, joined by time in columns, while processes are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs.driving import LONG_PATIENCE, finish, submit
from jobs.kills import Kills
from jobs.meeting import HeldUp
from jobs.oracle import committed_rows, hidden_files
from jobs.words import environment

from penstock import FileSink, FileSource, FixedDelay, WatermarkStrategy

pytestmark = pytest.mark.usefixtures("ray_cluster")

MILLISECOND = 1_000
FILES, ROWS_OF_FILE = 8, 250
ROWS = FILES * ROWS_OF_FILE


def write_files(folder: Path, name: str, at: Callable[[int], int]) -> None:
    folder.mkdir()
    for file in range(FILES):
        numbers = range(file * ROWS_OF_FILE, (file + 1) * ROWS_OF_FILE)
        rows = {
            "customer": [f"customer {n % 7}" for n in numbers],
            name: list(numbers),
            "at": [at(n) for n in numbers],
        }
        pq.write_table(pa.table(rows), folder / f"{file}.parquet", row_group_size=50)


def order_at(n: int) -> int:
    return 10 * n * MILLISECOND


def payment_at(n: int) -> int:
    """Every third payment comes too late, the others a little out of order."""
    return (10 * n + (500 if n % 3 == 0 else n % 5)) * MILLISECOND


def expected() -> list[list[Any]]:
    found = []
    for order in range(ROWS):
        partners = [
            payment
            for payment in range(order % 7, ROWS, 7)
            if 0 <= payment_at(payment) - order_at(order) <= 100 * MILLISECOND
        ]
        found += [[f"customer {order % 7}", order, payment] for payment in partners or [None]]
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("how", "seed", "kills"),
    [
        pytest.param({"unaligned": True}, 1, 2, id="2 kills"),
        pytest.param({}, 2, 15, id="15 kills, aligned", marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_a_left_join_of_two_parquet_sources_in_columns_is_exact_whoever_dies(
    tmp_path: Path,
    how: dict[str, Any],
    seed: int,
    kills: int,
    record_property: Callable[[str, object], None],
) -> None:
    write_files(tmp_path / "orders", "order", order_at)
    write_files(tmp_path / "payments", "payment", payment_at)
    (tmp_path / "shut").touch()
    env = environment(tmp_path, restart=FixedDelay(attempts=10 * kills, delay=0.05), **how)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(1).with_timestamp_column("at")
    orders, payments = (
        env.from_source(
            name,
            FileSource.parquet(str(tmp_path / name / "*.parquet"), batch_format="arrow"),
            parallelism=1,
        )
        .map_batches(HeldUp(str(tmp_path / "shut")), "arrow", parallelism=1)
        .assign_timestamps_and_watermarks(strategy, parallelism=1)
        for name in ("orders", "payments")
    )
    paid = orders.join(
        payments, on="customer", within=(0, 0.1), how="left", batch_format="arrow", id="paid", parallelism=2
    )
    rows = paid.map(lambda row: [row["customer"], row["order"], row.get("payment")])
    rows.sink("out", FileSink.json(tmp_path / "out"))
    job, killer = submit(env), Kills(seed, ("paid",))
    for _ in range(kills):
        killer.strike(job)
    (tmp_path / "shut").unlink()
    job.wait(LONG_PATIENCE)

    result = finish(job)

    record_property("shown", str(killer))
    assert result.statistics.restarts >= 1
    assert sorted(committed_rows(tmp_path / "out"), key=repr) == expected()
    assert hidden_files(tmp_path / "out") == []
