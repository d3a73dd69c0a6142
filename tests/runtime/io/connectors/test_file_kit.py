"""Files, collections and collectors pass the tests that every connector must pass."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest
from deep import DEEP
from kit_steps import SINK_STEPS, SOURCE_STEPS
from memory_folder import memory_folder

from penstock import CollectionSource, CollectSink, FileSink, FileSource
from penstock.connectors import OnRequest, Sink, Source
from penstock.runtime.io.connectors.local_files import filesystem_for
from penstock.testing import ExternalWorld, InMemoryCollector, WorldContext
from penstock.testing.connectors import SinkTests, SourceTests


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder() as folder:
        yield folder


class OutputFolder:
    """A folder into which a `FileSink` writes; its files are read without Penstock."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form = folder, form

    def sink(self) -> Sink[Any]:
        made: Sink[Any] = getattr(FileSink, self.form)(self.folder)
        return made

    def rows(self) -> list[Any]:
        return [row for file in sorted(self.folder.glob("part-*")) for row in self._rows_of(file)]

    def hidden(self) -> list[str]:
        return [file.name for file in self.folder.glob("_inprogress-*")]

    def _rows_of(self, file: Path) -> list[Any]:
        if self.form == "parquet":
            rows: list[Any] = pq.read_table(file).to_pylist()
            return rows
        with file.open(newline="") as lines:
            if self.form == "csv":
                return [{"number": int(row["number"])} for row in csv.DictReader(lines)]
            return [json.loads(line) for line in lines]


class TestCsvFileSink(SinkTests):
    simulated = DEEP > 1
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> OutputFolder:
        return OutputFolder(folder, "csv")

    def bad_record(self) -> Any:
        return {"another": 1}


class TestParquetFileSink(SinkTests):
    simulated = DEEP > 1
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> OutputFolder:
        return OutputFolder(folder, "parquet")

    def bad_record(self) -> Any:
        return {"number": {}}


class Called:
    """A file system, or a file of it, whose calls go through a world that decides about their fate."""

    def __init__(self, target: Any, world: ExternalWorld) -> None:
        self.target, self.world = target, world

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "target":
            raise AttributeError(name)
        method = getattr(self.target, name)

        def call(*arguments: Any) -> Any:
            made = self.world.run.call(lambda: method(*arguments), timeout=5)
            return Called(made, self.world) if name == "create" else made

        return call


class ObjectStore(ExternalWorld):
    """Files that are written by calls. Each run of a simulation has a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.base = folder

    def begin(self, run: WorldContext) -> None:
        super().begin(run)
        self.output = OutputFolder(Path(mkdtemp(dir=self.base)), "json")

    def sink(self) -> Sink[Any]:
        folder = self.output.folder
        return FileSink.json(folder, filesystem=Called(filesystem_for(str(folder), {}), self))

    def rows(self) -> list[Any]:
        return self.output.rows()

    def hidden(self) -> list[str]:
        return self.output.hidden()


class TestFileSinkOfAnObjectStore(SinkTests):
    seeds = range(DEEP)

    def make_world(self, folder: Path) -> ObjectStore:
        return ObjectStore(folder)

    def bad_record(self) -> Any:
        return {"number": object()}


class InputFolder:
    """A folder with files of lines. Small splits, so that a file has several."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        (folder / "empty.jsonl").touch()

    def source(self) -> Source[Any]:
        return FileSource.json(self.folder, split_size=40)

    def write(self, records: Sequence[Any]) -> None:
        for part in (records[::2], records[1::2]):
            self.files += 1
            lines = "".join(json.dumps(record) + "\n" for record in part)
            (self.folder / f"{self.files}.jsonl").write_text(lines)

    def write_bad(self) -> None:
        (self.folder / "bad.jsonl").write_text("{\n")

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> Source[Any]:
        return FileSource.json(self.folder, on_error=on_error)


class InputFolderOnRequest(InputFolder):
    def source(self) -> Source[Any]:
        return OnRequest(super().source())

    def tolerant_source(self, on_error: Literal["skip", "dead_letter"]) -> Source[Any]:
        return OnRequest(super().tolerant_source(on_error))


class TestFileSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> InputFolder:
        return InputFolder(folder)


class TestFileSourceOnRequest(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> InputFolderOnRequest:
        return InputFolderOnRequest(folder)


class Collected(InMemoryCollector):
    """The collector in the program."""

    def sink(self) -> Sink[Any]:
        return CollectSink(self)


class TestCollectSink(SinkTests):
    simulated = DEEP > 1
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> Collected:
        return Collected()


class Values:
    """The values of a program."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def source(self) -> Source[Any]:
        return CollectionSource(self.values)

    def write(self, records: Sequence[Any]) -> None:
        self.values += records


class TestCollectionSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> Values:
        return Values()
