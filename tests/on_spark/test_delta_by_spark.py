"""Spark, DuckDB and deltalake read Delta tables of a job whose committers die: the same rows, each once."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pipelines.delta_tables import COUNT, SLOTS, plain, row_of
from pipelines.programs import run_program

pytestmark = [pytest.mark.table_jars, pytest.mark.long]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def by_spark(folder: Path) -> dict[str, Any]:
    """Rows and ids that Spark reads after the end of the job."""
    said = run_program("delta_tables.py", folder)
    (line,) = (line for line in said.splitlines() if line.startswith('{"restarts"'))
    found: dict[str, Any] = json.loads(line)
    return found


def test_spark_reads_each_row_once_with_all_of_its_values(by_spark: dict[str, Any]) -> None:
    assert by_spark["restarts"] >= 2
    expected = Counter(json.dumps(plain(row_of(number))) for number in range(COUNT))
    assert Counter(map(json.dumps, by_spark["rows"])) == expected


def test_deltalake_and_duckdb_read_the_same_rows(by_spark: dict[str, Any], folder: Path) -> None:
    table = DeltaTable(folder / "appended")
    rows = table.to_pyarrow_table().to_pylist()
    assert sorted(map(json.dumps, map(plain, rows))) == sorted(map(json.dumps, by_spark["rows"]))
    found = duckdb.execute(
        "SELECT count(*), count(DISTINCT id), sum(id), sum(price), count(text) FROM read_parquet(?)",
        [table.file_uris()],
    ).fetchone()
    prices = sum((row_of(number)["price"] for number in range(COUNT)), Decimal(0))
    texts = sum(row_of(number)["text"] is not None for number in range(COUNT))
    assert found == (COUNT, COUNT, COUNT * (COUNT - 1) // 2, prices, texts)


def test_each_version_is_a_prefix_of_the_input_of_each_subtask(
    by_spark: dict[str, Any], folder: Path
) -> None:
    sizes = []
    for version, ids in by_spark["ids"].items():
        read = DeltaTable(folder / "appended", version=int(version)).to_pyarrow_table(columns=["id"])
        assert sorted(ids) == sorted(read.column("id").to_pylist())
        for subtask in (0, 1):
            mine = sorted(number for number in ids if number % 2 == subtask)
            assert mine == list(range(subtask, subtask + 2 * len(mine), 2)), f"version {version}"
        sizes.append(len(ids))
    assert sizes == sorted(set(sizes)), "each version has more rows than the one before it"
    assert len(sizes) >= 3
    checkpoints = [
        int(entry["penstock.checkpoint"])
        for entry in reversed(DeltaTable(folder / "appended").history())
        if "penstock.checkpoint" in entry
    ]
    assert checkpoints == sorted(set(checkpoints)), "in the order of checkpoints"


def test_spark_reads_the_last_row_of_each_key(by_spark: dict[str, Any]) -> None:
    assert by_spark["merged"] == [[slot, COUNT - SLOTS + slot] for slot in range(SLOTS)]


def test_spark_skips_no_file_that_has_rows_of_a_query(by_spark: dict[str, Any]) -> None:
    rows = [row_of(number) for number in range(COUNT)]
    assert by_spark["skipping"] == [
        sum(row["value"] < 30 for row in rows),
        sum(row["price"] < Decimal("0.5") for row in rows),
        sum(row["text"] is not None for row in rows),
        sum(row["part"] == "a/b c" for row in rows),
        1,
    ]
