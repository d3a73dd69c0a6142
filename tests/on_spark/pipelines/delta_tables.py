"""A job whose committers die writes two Delta tables, and Spark reads them; see test_delta_by_spark.py.

It prints what Spark reads as one line of JSON: all rows of both tables, and of each version of the first one
its ids.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from pipelines.jobs import environment, finish
from serving.table_jars import spark_with_delta

from penstock import GeneratorSource
from penstock.bridge.session.spark_options import find_java, use_java
from penstock.cluster import start_local
from penstock.connectors import CommitPermit, SinkContext, SinkWriter
from penstock.delta import DeltaSink
from penstock.operators import Batch

COUNT, RATE = 3_000, 1_000.0
SLOTS = 50
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "part": pa.string(),
        "text": pa.string(),
        "value": pa.float64(),
        "price": pa.decimal128(12, 3),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
    }
)


def row_of(number: int) -> dict[str, Any]:
    """Row `number` of the first table: nulls, NaN, and characters that folders and JSON escape."""
    return {
        "id": number,
        "part": (None, "a/b c", "ü%:=")[number % 3],
        "text": None if number % 7 == 0 else f'line\u2028 "{number}" \U0001f600',
        "value": math.nan if number % 11 == 0 else number / 7,
        "price": Decimal(number).scaleb(-3),
        "at": datetime(1969, 12, 31, 23, 59, tzinfo=UTC) + timedelta(seconds=number, microseconds=1),
        "tags": None if number % 5 == 0 else [f"t{number}", None],
    }


def slot_row(row: dict[str, Any]) -> dict[str, int]:
    return {"slot": row["id"] % SLOTS, "last": row["id"]}


@dataclass(frozen=True)
class DyingTable:
    """A Delta sink whose committer dies before its first commit, and after its second one."""

    inner: DeltaSink
    marker: str

    def writer(self, context: SinkContext) -> Any:
        return self.inner.writer(context)

    def committer(self, context: SinkContext) -> SinkWriter[Any]:
        return DyingCommitter(self.inner.committer(context), Path(self.marker))


class DyingCommitter:
    def __init__(self, inner: SinkWriter[Any], marker: Path) -> None:
        self._inner, self._marker = inner, marker

    def write(self, batch: Batch) -> None:
        self._inner.write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        return self._inner.prepare_commit()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        self._die_once("before")
        self._inner.commit(committables, permit)
        self._die_once("after")

    def close(self) -> None:
        self._inner.close()

    def _die_once(self, moment: str) -> None:
        marker = self._marker.with_suffix(f".{moment}")
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def write(folder: Path) -> int:
    """Write both tables; return the number of restarts."""
    start_local(num_cpus=4)
    env = environment(folder)
    appended = DeltaSink(folder / "appended", SCHEMA, partition_by=["part"])
    merged = DeltaSink(folder / "merged", pa.schema({"slot": pa.int64(), "last": pa.int64()}), key=["slot"])
    rows = env.from_source("rows", GeneratorSource(row_of, count=COUNT, rate=RATE))
    rows.sink("appended", DyingTable(appended, str(folder / "appended-died")))
    # `SLOTS` is even, so the rows of a slot come from one subtask.
    rows.map(slot_row).sink("merged", DyingTable(merged, str(folder / "merged-died")))
    result = finish(env.submit())
    ray.shutdown()
    return result.statistics.restarts


def plain(row: Any) -> list[Any]:
    """A row as JSON has it: all of its digits."""
    at = None if row["at"] is None else row["at"].replace(tzinfo=UTC).isoformat()
    return [row["id"], row["part"], row["text"], repr(row["value"]), str(row["price"]), at, row["tags"]]


def read(folder: Path) -> dict[str, Any]:
    """Read both tables by Spark."""
    use_java(find_java(os.environ), os.environ)
    os.environ["TZ"] = "UTC"
    spark = spark_with_delta()
    table = str(folder / "appended")
    newest = spark.read.format("delta").load(table)
    versions = [row["version"] for row in spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()]
    ids = {
        version: [
            row["id"]
            for row in spark.read.format("delta").option("versionAsOf", version).load(table).collect()
        ]
        for version in sorted(versions)
    }
    merged = spark.read.format("delta").load(str(folder / "merged")).collect()
    found = {
        "rows": [plain(row) for row in newest.collect()],
        "ids": ids,
        "merged": sorted([row["slot"], row["last"]] for row in merged),
        # Spark skips files by the statistics in the log.
        "skipping": [
            newest.where(condition).count()
            for condition in ("value < 30", "price < 0.5", "text >= 'line'", "part = 'a/b c'", "id = 7")
        ],
    }
    spark.stop()
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    restarts = write(place)
    print(json.dumps({"restarts": restarts, **read(place)}))
