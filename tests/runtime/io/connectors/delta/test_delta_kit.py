"""A Delta table passes the tests that every sink and every source must pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deep import DEEP
from deltalake import DeltaTable, write_deltalake
from kit_steps import SINK_STEPS, SOURCE_STEPS

from penstock.delta import DeltaSink, DeltaSource
from penstock.testing.connectors import SinkTests, SourceTests

SCHEMA = pa.schema({"number": pa.int64()})


@pytest.fixture
def tmp_path(folder: Path) -> Path:
    return folder


class OutputTable:
    """A table into which a `DeltaSink` writes; it is read by deltalake itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "table"

    def sink(self) -> DeltaSink:
        return DeltaSink(self.folder, SCHEMA)

    def rows(self) -> list[Any]:
        rows: list[Any] = (
            DeltaTable(self.folder).to_pyarrow_table().to_pylist() if self.folder.exists() else []
        )
        return rows


class TestDeltaSink(SinkTests):
    simulated = DEEP > 1
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> OutputTable:
        return OutputTable(folder)

    def bad_record(self) -> Any:
        return {"number": {}}


class UpsertedTable(OutputTable):
    """A table into which a `DeltaSink` merges rows by their key."""

    def sink(self) -> DeltaSink:
        return DeltaSink(self.folder, SCHEMA, key=["number"])

    def hidden(self) -> list[str]:
        return [file.name for file in self.folder.glob("_penstock/*.parquet")]


class TestUpsertingDeltaSink(SinkTests):
    simulated = DEEP > 1
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> UpsertedTable:
        return UpsertedTable(folder)

    def bad_record(self) -> Any:
        return {"number": None}


class InputTable:
    """A table that deltalake writes, three records at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "table"
        DeltaTable.create(self.folder, SCHEMA)

    def source(self) -> DeltaSource:
        return DeltaSource(self.folder)

    def write(self, records: Sequence[Any]) -> None:
        for start in range(0, len(records), 3):
            batch = pa.Table.from_pylist(list(records[start : start + 3]), SCHEMA)
            write_deltalake(self.folder, batch, mode="append")


class LogOfTable(InputTable):
    """The commits of such a table, from the first one."""

    def source(self) -> DeltaSource:
        return DeltaSource(self.folder, starting_version=0)


class TestDeltaSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> InputTable:
        return InputTable(folder)


class TestCommitsOfDeltaSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> LogOfTable:
        return LogOfTable(folder)
