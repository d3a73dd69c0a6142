"""Spark, DuckDB and pyiceberg read an Iceberg table of a job that dies: the same rows, each once."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pipelines.delta_tables import plain, row_of
from pipelines.iceberg_tables import COUNT, NAME, TABLE, catalog_in
from pipelines.programs import run_program
from pyiceberg.catalog import load_catalog

from penstock.iceberg import IcebergSource
from penstock.runtime.testing.source_harness import SourceHarness

pytestmark = [pytest.mark.table_jars, pytest.mark.long]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def by_spark(folder: Path) -> dict[str, Any]:
    """Let Spark read the table after the job has ended."""
    (line,) = (line for line in run_program("iceberg_tables.py", folder).splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


def test_spark_reads_each_row_once_with_all_of_its_values(by_spark: dict[str, Any]) -> None:
    expected = Counter(json.dumps(plain(row_of(number))) for number in range(COUNT))
    assert Counter(map(json.dumps, by_spark["rows"])) == expected


def test_each_snapshot_is_a_checkpoint(by_spark: dict[str, Any]) -> None:
    assert [sorted(ids) for ids in by_spark["ids"]] == [list(range(count)) for count in (100, 200, 300)]
    assert by_spark["commits"] == ["1", "2", "1"]


def test_spark_skips_no_file_that_has_rows_of_a_query(by_spark: dict[str, Any]) -> None:
    rows = [row_of(number) for number in range(COUNT)]
    assert by_spark["skipping"] == [
        sum(row["value"] < 30 for row in rows),
        sum(row["price"] < Decimal("0.1") for row in rows),
        sum(row["text"] is not None for row in rows),
        sum(row["part"] == "a/b c" for row in rows),
        1,
    ]


def test_duckdb_reads_the_same_rows(by_spark: dict[str, Any], folder: Path) -> None:
    table = load_catalog(NAME, **catalog_in(folder)).load_table(TABLE)
    third = table.snapshots()[2].snapshot_id
    files = [
        task.file.file_path.removeprefix("file://") for task in table.scan(snapshot_id=third).plan_files()
    ]
    found = duckdb.execute(
        "SELECT count(*), count(DISTINCT id), sum(id), sum(price), count(text) FROM read_parquet(?)", [files]
    ).fetchone()
    prices = sum((row_of(number)["price"] for number in range(COUNT)), Decimal(0))
    texts = sum(row_of(number)["text"] is not None for number in range(COUNT))
    assert found == (COUNT, COUNT, COUNT * (COUNT - 1) // 2, prices, texts)


def test_the_source_reads_what_spark_has_written(by_spark: dict[str, Any], folder: Path) -> None:
    source = IcebergSource(TABLE, catalog=catalog_in(folder), catalog_name=NAME)
    with SourceHarness(source) as harness:
        ids = Counter(row["id"] for row in harness.read_all())
    assert ids == Counter([*(number for number in range(COUNT) if number != 8), 7])
