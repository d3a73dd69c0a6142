"""An Iceberg table passes the tests that every sink and every source must pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deep import DEEP
from iceberg_jobs import SCHEMA, TABLE, TableWorld
from kit_steps import SINK_STEPS, SOURCE_STEPS

from penstock.iceberg import IcebergSource
from penstock.testing.connectors import SinkTests, SourceTests

SECRET = "secret-of-the-store"

#: A commit to a catalog takes far longer than one to a folder, so the fast tests take few steps.
STEPS = ("complete", "last write") if DEEP == 1 else SINK_STEPS
only_deep = pytest.mark.skipif(
    DEEP == 1, reason="test_iceberg_source.py restores jobs, too; PENSTOCK_DEEP=2 runs all of it"
)


@pytest.fixture
def tmp_path(folder: Path) -> Path:
    return folder


class OutputTable(TableWorld):
    """A table into which an `IcebergSink` writes; it is read by pyiceberg itself."""

    secret = SECRET

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SCHEMA)
        self.catalog["s3.secret-access-key"] = SECRET


class TestIcebergSink(SinkTests):
    simulated = DEEP > 1
    steps = STEPS

    def make_world(self, folder: Path) -> OutputTable:
        return OutputTable(folder)

    def bad_record(self) -> Any:
        return {"number": {}}


class UpsertedTable(OutputTable):
    """A table into which an `IcebergSink` merges rows by their key, and whose files it joins."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = {"key": ["number"], "compact_below": 1_000_000, "compact_at": 3}


class TestUpsertingIcebergSink(SinkTests):
    simulated = DEEP > 1
    steps = STEPS

    def make_world(self, folder: Path) -> UpsertedTable:
        return UpsertedTable(folder)

    def bad_record(self) -> Any:
        return {"number": None}


class InputTable(TableWorld):
    """A table that pyiceberg writes, three records at a time."""

    secret = SECRET

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.catalog["s3.secret-access-key"] = SECRET
        self.make()

    def source(self) -> IcebergSource:
        return IcebergSource(TABLE, catalog=self.catalog)

    def write(self, records: Sequence[Any]) -> None:
        for start in range(0, len(records), 3):
            self.append(records[start : start + 3])


class SnapshotsOfTable(InputTable):
    """The snapshots of such a table, from the first one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table.append(pa.table({"number": pa.array([], pa.int64())}))

    def source(self) -> IcebergSource:
        first = self.table.snapshots()[0].snapshot_id
        return IcebergSource(TABLE, catalog=self.catalog, starting_snapshot_id=first)


@only_deep
class TestIcebergSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> InputTable:
        return InputTable(folder)


@only_deep
class TestSnapshotsOfIcebergSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> SnapshotsOfTable:
        return SnapshotsOfTable(folder)
