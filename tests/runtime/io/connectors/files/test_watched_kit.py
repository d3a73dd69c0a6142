"""A watched folder passes the tests that every connector must pass."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from kit_steps import SOURCE_STEPS
from memory_folder import memory_folder

from penstock import FileSource
from penstock.connectors import Source, Watch
from penstock.testing.connectors import SourceTests

#: Ends when there is nothing left; the order does not depend on the clock of the disk.
ENDS = Watch(0.001, rest=0, order="name", idle_timeout=0)
GROWS = Watch(0.001, rest=0, order="name", clean_source="delete")


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


class TestWatchedFolder(SourceTests):
    steps = SOURCE_STEPS
    seeds = range(4)

    def make_world(self, folder: Path) -> WatchedFolder:
        return WatchedFolder(folder)
