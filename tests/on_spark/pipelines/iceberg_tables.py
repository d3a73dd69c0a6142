"""A job that dies between its steps writes an Iceberg table, and Spark reads it; see
test_iceberg_by_spark.py.

It prints what Spark reads as one line of JSON: all rows, the ids of each snapshot, and counts of queries that
skip files. Spark then appends a row, and deletes one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pipelines.delta_tables import SCHEMA, plain, row_of
from serving.table_jars import spark_with_iceberg

from penstock.bridge.session.spark_options import find_java, use_java
from penstock.iceberg import IcebergSink
from penstock.runtime.testing.connectors.sink_job import SinkJob

COUNT, TABLE, NAME = 300, "shop.orders", "tables"


def catalog_in(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self) -> IcebergSink:
        catalog = catalog_in(self.folder)
        return IcebergSink(
            TABLE,
            SCHEMA,
            catalog=catalog,
            catalog_name=NAME,
            partition_by=["part", "bucket(2, id)", "days(at)"],
        )

    def rows(self) -> list[Any]:
        return []


def write(folder: Path) -> None:
    """Write the table: a commit, one that is repeated, and one by a process that was declared dead."""
    job = SinkJob(World(folder), [row_of(number) for number in range(COUNT)], parallelism=2).start()
    job.write(100)
    job.checkpoint()
    job.write(100)
    point = job.snapshot()
    job.decide(point)
    zombie = job.fork()
    job.start()
    zombie.notify(point)
    job.finish()


def read(folder: Path) -> dict[str, Any]:
    """Read the table by Spark."""
    use_java(find_java(os.environ), os.environ)
    os.environ["TZ"] = "UTC"
    spark = spark_with_iceberg(NAME, catalog_in(folder))
    table = f"{NAME}.{TABLE}"
    newest = spark.table(table)
    snapshots = spark.sql(
        f"SELECT snapshot_id, summary FROM {table}.snapshots ORDER BY committed_at"
    ).collect()
    found = {
        "rows": [plain(row) for row in newest.collect()],
        "ids": [
            [
                row["id"]
                for row in spark.sql(f"SELECT id FROM {table} VERSION AS OF {each.snapshot_id}").collect()
            ]
            for each in snapshots
        ],
        "commits": [each.summary["penstock.commit"] for each in snapshots],
        # Spark skips files by their partitions and by the bounds in manifests.
        "skipping": [
            newest.where(condition).count()
            for condition in ("value < 30", "price < 0.1", "text >= 'line'", "part = 'a/b c'", "id = 7")
        ],
    }
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE id = 7")
    spark.sql(f"DELETE FROM {table} WHERE id = 8")
    spark.stop()
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write(place)
    print(json.dumps(read(place)))
