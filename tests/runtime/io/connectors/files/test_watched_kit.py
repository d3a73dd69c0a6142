"""A watched folder passes the tests that every connector must pass."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from deep import DEEP
from kit_steps import SOURCE_STEPS
from memory_folder import memory_folder

from penstock import FileSource
from penstock.connectors import Source
from penstock.files import FolderWatch
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.testing.connectors.collected import CollectedRecords, RecordsSink
from penstock.runtime.testing.connectors.outside import Outside
from penstock.testing.connectors import SourceTests

#: Ends when there is nothing left; the order does not depend on the clock of the disk.
ENDS = FolderWatch(0.001, rest=0, order="name", idle_timeout=0)
GROWS = FolderWatch(0.001, rest=0, order="name", clean_source="delete")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder() as folder:
        yield folder


class WatchedFolder:
    """A folder to which files of lines are added. Small splits, so that a file has several."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        (folder / "empty.jsonl").touch()

    def source(self) -> Source[Any]:
        return FileSource.json(self.folder, split_size=40, watch=ENDS)

    def growing_source(self) -> Source[Any]:
        return FileSource.json(self.folder, split_size=40, watch=GROWS)

    def write(self, records: Sequence[Any]) -> None:
        for part in (records[::2], records[1::2]):
            self.add_split(part)

    def add_split(self, records: Sequence[Any]) -> None:
        self.files += 1
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (self.folder / f"{self.files}.jsonl").write_text(lines)

    def write_bad(self) -> None:
        (self.folder / "bad.jsonl").write_text("{\n")

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> Source[Any]:
        return FileSource.json(self.folder, on_error=on_error, watch=ENDS)


class NextFile:
    """Adds a file when the last record of the one before is processed, and passes the record on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, record: Any) -> Any:
        number = record["number"] + 1
        name = f"{number:03}.jsonl"
        if number % 4 == 0 and number < 24 and not (self.folder / name).exists():
            lines = "".join(f'{{"number": {each}}}\n' for each in range(number, number + 4))
            (self.folder / f"_{name}").write_text(lines)
            (self.folder / f"_{name}").rename(self.folder / name)
        return record


class TestWatchedFolder(SourceTests):
    steps = SOURCE_STEPS
    simulated = DEEP > 1
    seeds = range(2 * DEEP)

    def make_world(self, folder: Path) -> WatchedFolder:
        return WatchedFolder(folder)

    def test_a_simulated_job_reads_each_file_once_that_comes_while_it_runs_or_restarts(
        self, outside: Outside[WatchedFolder]
    ) -> None:
        def build(world: Any) -> StreamEnvironment:
            env = StreamEnvironment("kit", parallelism=2, checkpointing=Checkpointing(every=60))
            records = env.from_source("records", world.source()).map(NextFile(world.folder))
            records.rebalance().sink("out", RecordsSink(world.collected))
            return env

        def prepare(world: Any) -> None:
            world.write(self.records(4))
            world.collected = CollectedRecords()

        counts = set()

        def output(world: Any) -> list[Any]:
            rows = list(world.collected.rows)
            counts.add(len(rows))
            return rows

        self.simulate(outside, build, output, prepare=prepare)
        assert counts == {24}
