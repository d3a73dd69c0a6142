"""A Delta table passes the tests that every sink and every source must pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deep import DEEP
from deltalake import DeltaTable
from kit_steps import SINK_STEPS

from penstock.delta import DeltaSink
from penstock.testing.connectors import SinkTests

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
