"""Sound connectors of models pass all tests of the kit, and no test is skipped on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deep import DEEP
from kit_steps import SINK_STEPS, SOURCE_STEPS
from model_log import Log
from model_queue import EndlessQueue, Queue
from model_table import Table, TableSink, TableWriter

from penstock import ConnectorError
from penstock.connectors import SinkContext
from penstock.operators import Batch
from penstock.testing.connectors import SinkTests, SourceTests


class TestTable(SinkTests):
    seeds = range(DEEP)

    def make_world(self, folder: Path) -> Table:
        return Table()

    def bad_record(self) -> dict[str, None]:
        return {"number": None}


class LateWriter(TableWriter):
    """Its errors come at the next pre-commit, as those of a writer that sends in another thread."""

    error: ConnectorError | None = None

    def write(self, batch: Batch) -> None:
        try:
            super().write(batch)
        except ConnectorError as error:
            self.error = error

    def prepare_commit(self) -> Sequence[Any]:
        if self.error is not None:
            raise self.error
        return super().prepare_commit()


class LateSink(TableSink):
    def writer(self, context: SinkContext) -> TableWriter:
        return LateWriter(self, context)


class LateTable(Table):
    def sink(self) -> TableSink:
        return LateSink(self, self.secret)


class TestTableWhoseErrorsComeLate(SinkTests):
    simulated = False
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> Table:
        return LateTable()


class TestLog(SourceTests):
    seeds = range(DEEP)

    def make_world(self, folder: Path) -> Log:
        return Log()


class TestQueue(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> Queue:
        return Queue()


class TestEndlessQueue(SourceTests):
    guarantee = "at_least_once"
    is_bounded = False
    simulated = False
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> Queue:
        return EndlessQueue()
