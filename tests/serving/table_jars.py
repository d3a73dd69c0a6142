"""The jars with which Spark reads tables, as `make table-jars` has fetched them into `.venv`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

_JARS: Final = Path(sys.prefix) / "table_jars"


def program() -> str | None:
    """The jars as a setting of Spark; `None` without them."""
    return ",".join(map(str, sorted(_JARS.glob("*.jar")))) if (_JARS / ".ready").exists() else None


def spark_with_delta() -> Any:
    """A local session that reads Delta tables, with one core."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("tables")
    settings = {
        "spark.jars": program(),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": 1,
        # A few small queries: to compile them takes longer than to run them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": False,
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": False,
        "spark.databricks.delta.snapshotPartitions": 1,
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
