"""Sound connectors of models pass all tests of the kit, and no test is skipped on all of them."""

from __future__ import annotations

from pathlib import Path

from deep import DEEP
from kit_steps import SOURCE_STEPS
from model_log import Log
from model_queue import Queue
from model_table import Table

from penstock.testing.connectors import SinkTests, SourceTests


class TestTable(SinkTests):
    seeds = range(DEEP)

    def make_world(self, folder: Path) -> Table:
        return Table()

    def bad_record(self) -> dict[str, None]:
        return {"number": None}


class TestLog(SourceTests):
    seeds = range(DEEP)

    def make_world(self, folder: Path) -> Log:
        return Log()


class TestQueue(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> Queue:
        return Queue()
