"""The jars with which Spark reads tables, as `make table-jars` has fetched them into `.venv`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_JARS: Final = Path(sys.prefix) / "table_jars"


def program() -> str | None:
    """The jars as a setting of Spark; `None` without them."""
    return ",".join(map(str, sorted(_JARS.glob("*.jar")))) if (_JARS / ".ready").exists() else None


def spark_with_delta() -> Any:
    """A local session that reads Delta tables, with one core."""
    return _session(
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": 1,
        }
    )


def spark_with_iceberg(name: str, catalog: Mapping[str, str]) -> Any:
    """A local session with an Iceberg catalog in SQLite, with one core.

    Args:
        name: Name of the catalog, for Spark and in the database.
        catalog: Its properties for pyiceberg.
    """
    prefix = f"spark.sql.catalog.{name}"
    return _session(
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": catalog["uri"].replace("sqlite:///", "jdbc:sqlite:"),
            f"{prefix}.warehouse": catalog["warehouse"],
            f"{prefix}.jdbc.schema-version": "V1",
        }
    )


def _session(settings: Mapping[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("tables")
    common = {
        "spark.jars": program(),
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
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in {**common, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
