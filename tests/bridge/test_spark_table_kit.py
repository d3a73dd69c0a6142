"""A table for Spark passes the tests that every sink must pass; its files are read without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deep import DEEP
from kit_steps import SINK_STEPS
from memory_folder import memory_folder

from penstock.bridge import spark_table
from penstock.spark import SparkTable
from penstock.testing.connectors import SinkTests


class TableFolder:
    """The folder of a table, as Spark sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "table"

    def sink(self) -> SparkTable:
        return SparkTable(self.folder, pa.schema({"number": pa.int64()}))

    def rows(self) -> list[Any]:
        return [row for file in self.folder.glob("part-*") for row in pq.read_table(file).to_pylist()]

    def hidden(self) -> list[str]:
        return [file.name for file in self.folder.glob("_inprogress-*")]


class TestSparkTable(SinkTests):
    simulated = DEEP > 1
    steps = SINK_STEPS
    is_shared = False

    @pytest.fixture
    def tmp_path(self) -> Iterator[Path]:
        """A folder in memory."""
        with memory_folder() as folder:
            yield folder

    @pytest.fixture(autouse=True)
    def _owners_have_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A job that was stopped or killed has no JobMaster; there is no cluster to look for one."""
        monkeypatch.setattr(spark_table, "has_master", lambda job_id: False)

    def make_world(self, folder: Path) -> TableFolder:
        return TableFolder(folder)

    def bad_record(self) -> Any:
        return {"number": "x"}
