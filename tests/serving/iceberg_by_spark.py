"""Reads an Iceberg table with Spark, in a process of its own; see `rows_by_spark`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

#: Seconds; far more than it takes.
_PATIENCE: Final = 400


def rows_by_spark(name: str, catalog: Mapping[str, str], table: str) -> list[list[dict[str, Any]]]:
    """The rows of each snapshot, from the oldest.

    Args:
        name: Name of the catalog.
        catalog: Properties of a catalog in SQLite, for pyiceberg.
    """
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "serving.iceberg_by_spark", name, json.dumps(dict(catalog)), table],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _read(name: str, catalog: Mapping[str, str], table: str) -> list[list[dict[str, Any]]]:
    from penstock.bridge.session.spark_options import find_java, use_java
    from serving.table_jars import spark_with_iceberg

    use_java(find_java(os.environ), os.environ)
    spark = spark_with_iceberg(name, catalog)
    of_table = f"{name}.{table}"
    snapshots = spark.sql(f"SELECT snapshot_id FROM {of_table}.snapshots ORDER BY committed_at").collect()
    rows = [
        [row.asDict() for row in spark.sql(f"SELECT * FROM {of_table} VERSION AS OF {number}").collect()]
        for (number,) in snapshots
    ]
    spark.stop()
    return rows


if __name__ == "__main__":
    print(json.dumps(_read(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])))
