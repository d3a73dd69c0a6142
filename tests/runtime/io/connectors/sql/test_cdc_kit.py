"""`PostgresCdcSource` passes the tests that every source must pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cdc_worlds import ChangedTable, StreamedTable
from kit_steps import SOURCE_STEPS
from serving.postgres import PostgresServer

from penstock.testing.connectors import SourceTests


class CdcTests(SourceTests):
    steps: Sequence[str] = SOURCE_STEPS
    simulated = False

    @pytest.fixture(autouse=True)
    def _use(self, postgres: PostgresServer) -> None:
        self.server = postgres

    def record(self, number: int) -> Any:
        return {"number": number, "_change_type": "insert"}


class TestStreamedChanges(CdcTests):
    """All records come as changes."""

    def make_world(self, folder: Path) -> StreamedTable:
        return StreamedTable(self.server, bounded=True)


class TestSnapshot(CdcTests):
    """All records are rows of the snapshot, and the stream has them again."""

    steps = SOURCE_STEPS[1:2]
    knows_lag = False  # it is not known while the snapshot is read
    is_resumable = False  # the slot begins behind an older savepoint

    def make_world(self, folder: Path) -> ChangedTable:
        world = ChangedTable(self.server, bounded=True, page_rows=2)
        world.make_slot()
        return world
