"""A file is complete when its marker is there, also an empty one, whatever pattern names the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from memory_folder import memory_folder
from obstore.store import MemoryStore

from penstock.files import FolderWatch
from penstock.runtime.io.connectors.files.folder_lister import FolderLister
from penstock.runtime.io.connectors.files.known_files import KnownFiles
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.runtime.io.connectors.object_files import ObjectFileSystem


class Place:
    """A folder, on disk or in an object store, to which files are written."""

    def __init__(self, root: str, filesystem: FileSystem, put: Callable[[str, bytes], object]) -> None:
        self.root = root
        self.filesystem = filesystem
        self.put = put

    def new(self, location: str, marker: str) -> list[str]:
        """Paths of the complete files of a location."""
        watch = FolderWatch(1, marker=marker, rest=0)
        lister = FolderLister([f"{self.root}/{location}"], watch, lambda path: self.filesystem)
        listing = lister.look(KnownFiles.empty(), {}, 0.0)
        return [info.path.removeprefix(f"{self.root}/") for info in listing.new]


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "store":
        store = MemoryStore()
        yield Place("s3://bucket", ObjectFileSystem(store, "s3://bucket"), store.put)
        return
    with memory_folder() as folder:

        def put(name: str, data: bytes) -> None:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        yield Place(str(folder), LocalFileSystem(), put)


LOCATIONS = [
    "in",
    "in/*",
    "in/*/*.csv",
    "in/**",
    "in/**/*.csv",
    "in/day/*.csv",
    "in/day/a.csv",
    "*/day/?.csv",
]


@pytest.mark.parametrize(
    ("marker", "path"), [("*.done", "in/day/a.csv.done"), ("_SUCCESS", "in/day/_SUCCESS")]
)
@pytest.mark.parametrize("location", LOCATIONS)
def test_a_file_waits_for_its_empty_marker(place, location, marker, path):
    place.put("in/day/a.csv", b"1\n")
    place.put("in/b.csv", b"2\n")
    assert place.new(location, marker) == []
    place.put(path, b"")
    assert place.new(location, marker) == ([] if location == "in/*" else ["in/day/a.csv"])


@pytest.mark.parametrize("location", ["in[1]/a[b].csv", "in[[]1]/*.csv", "in[[]1]/a*"])
def test_wildcard_characters_may_be_part_of_the_names(place, location):
    place.put("in[1]/a[b].csv", b"1\n")
    place.put("in[1]/a[b].csv.done", b"")
    assert place.new(location, "*.done") == ["in[1]/a[b].csv"]


def test_wildcard_characters_may_be_part_of_the_name_of_a_folder_on_disk(tmp_path):
    (tmp_path / "in[1]").mkdir()
    for name, text in [("a.csv", "1\n"), ("a.csv.done", "")]:
        (tmp_path / "in[1]" / name).write_text(text)
    disk = Place(str(tmp_path), LocalFileSystem(), lambda name, data: None)
    assert disk.new("in[1]", "*.done") == ["in[1]/a.csv"]


def test_a_pattern_reads_no_folders_beside_its_own(tmp_path):
    """A walk of the whole folder would enter folders that the job may not read."""
    (tmp_path / "a.csv").write_text("1\n")
    (tmp_path / "a.csv.done").touch()
    (tmp_path / "loop").symlink_to("loop")
    disk = Place(str(tmp_path), LocalFileSystem(), lambda name, data: None)
    assert disk.new("*.csv", "*.done") == ["a.csv"]
