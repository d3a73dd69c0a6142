from __future__ import annotations

import os

import pytest
from obstore.store import MemoryStore

from penstock import ConnectorError, FileSource
from penstock.runtime.io.connectors.object_files import ObjectFileSystem

NAMES = [
    "a.txt",
    "b.csv",
    "sub/c.txt",
    "sub/deep/d.txt",
    "sub/_inprogress-e.txt",
    "_work/f.txt",
    ".hidden/g.txt",
    "x[1].txt",
]

PATTERNS = {
    "*.txt": ["a.txt", "x[1].txt"],
    "**/*.txt": ["a.txt", "sub/c.txt", "sub/deep/d.txt", "x[1].txt"],
    "sub/*": ["sub/c.txt"],
    "sub": ["sub/c.txt", "sub/deep/d.txt"],
    "s?b/**": ["sub/c.txt", "sub/deep/d.txt"],
    "[ab].*": ["a.txt", "b.csv"],
    "[!a].*": ["b.csv"],
    "*/deep/*.txt": ["sub/deep/d.txt"],
    "sub/_*": ["sub/_inprogress-e.txt"],
    "_work/*.txt": ["_work/f.txt"],
    "**/_work/*.txt": ["_work/f.txt"],
    "sub/_inprogress-e.txt": ["sub/_inprogress-e.txt"],
    "x[[]1].txt": ["x[1].txt"],
}


@pytest.fixture
def on_disk(tmp_path):
    for name in NAMES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    return lambda pattern: FileSource.text(f"{tmp_path}/{pattern}"), f"{tmp_path}/"


@pytest.fixture
def in_store():
    store = MemoryStore()
    for name in NAMES:
        store.put(f"root/{name}", name.encode())
    files = ObjectFileSystem(store, "s3://bucket")
    return lambda pattern: FileSource.text(
        f"s3://bucket/root/{pattern}", filesystem=files
    ), "s3://bucket/root/"


@pytest.mark.parametrize("place", ["on_disk", "in_store"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_find_the_same_files_on_disk_and_in_a_store(place, pattern, request):
    source, root = request.getfixturevalue(place)
    assert [split.path.removeprefix(root) for split in source(pattern).splits(1)] == PATTERNS[pattern]


@pytest.mark.parametrize("place", ["on_disk", "in_store"])
def test_a_file_whose_name_looks_like_a_pattern_is_found(place, request):
    source, root = request.getfixturevalue(place)
    assert [split.path for split in source("x[1].txt").splits(1)] == [f"{root}x[1].txt"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", ["", "**", "**/*.txt", "*/**/*.txt"])
def test_a_folder_is_entered_once_whatever_links_lead_to_it(tmp_path, pattern):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "n.txt").write_text(folder)
    (tmp_path / "x").symlink_to(".")
    (tmp_path / "y").symlink_to("x")
    (tmp_path / "a" / "other").symlink_to("../b")
    (tmp_path / "b" / "up").symlink_to("..")
    (tmp_path / "b" / "nowhere").symlink_to("gone")
    found = FileSource.text(tmp_path / pattern).splits(1)
    assert sorted({os.path.realpath(split.path) for split in found}) == [
        str(tmp_path / folder / "n.txt") for folder in ("a", "b")
    ]
    assert len(found) == 2


def test_a_link_to_a_folder_elsewhere_is_followed(tmp_path):
    for folder in ("in", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "elsewhere" / "n.txt").write_text("n")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (split,) = FileSource.text(tmp_path / "in").splits(1)
    assert split.path == str(tmp_path / "in" / "linked" / "n.txt")


def test_a_list_of_patterns_gives_every_file_once(tmp_path, read_all):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    assert read_all(FileSource.text([tmp_path / "b.txt", f"{tmp_path}/*.txt"])).rows == ["b", "a"]


def test_a_file_url_is_a_path(tmp_path, read_all):
    (tmp_path / "a b.txt").write_text("a")
    assert read_all(FileSource.text(f"file://{tmp_path}/a%20b.txt")).rows == ["a"]


def test_a_relative_path_means_the_directory_where_the_graph_is_built(tmp_path, read_all, monkeypatch):
    (tmp_path / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    source = FileSource.text("a.txt")
    monkeypatch.chdir(os.path.dirname(tmp_path))
    assert read_all(source).rows == ["a"]


def test_finding_nothing_is_an_error_that_names_pattern_and_directory(tmp_path):
    with pytest.raises(ConnectorError) as failure:
        FileSource.text(f"{tmp_path}/in/*.txt").splits(2)
    assert f"no file matches '{tmp_path}/in/*.txt'; searched in '{tmp_path}/in'" in str(failure.value)


def test_a_file_that_is_not_there_is_named_once(tmp_path):
    with pytest.raises(ConnectorError) as failure:
        FileSource.text(f"{tmp_path}/in/a.txt").splits(2)
    assert str(failure.value).startswith(f"no file is at '{tmp_path}/in/a.txt'. Check the spelling")


def test_finding_only_work_in_progress_says_so(tmp_path):
    (tmp_path / "_inprogress-a.txt").write_text("a")
    with pytest.raises(ConnectorError, match=r"hidden files, whose names begin .*: 1\)"):
        FileSource.text(tmp_path).splits(1)


def test_hidden_files_that_are_left_out_are_told_with_their_number_and_the_first_name(tmp_path):
    for name in ("a.py", "_b.py", "__init__.py", "sub/.c.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n")
    splits = FileSource.text(tmp_path).splits(1)
    assert [os.path.basename(split.path) for split in splits] == ["a.py"]
    [warning] = splits.warnings
    assert f"{tmp_path}: 3 files were left out" in warning
    assert f"the first is {tmp_path}/__init__.py." in warning
    assert f"such as '{tmp_path}/_*'" in warning
    [one] = FileSource.text([f"{tmp_path}/*.py", f"{tmp_path}/sub/.*"]).splits(1).warnings
    assert "2 files were left out" in one
    everything = FileSource.text([tmp_path, f"{tmp_path}/_*", f"{tmp_path}/sub/.*"]).splits(1)
    assert len(everything) == 4


def test_files_that_are_all_read_need_no_warning(tmp_path):
    (tmp_path / "a.txt").write_text("x\n")
    assert FileSource.text(tmp_path).splits(1).warnings == ()


@pytest.mark.parametrize("several", [list, tuple, set, iter, dict.fromkeys], ids=lambda kind: kind.__name__)
def test_locations_may_be_any_iterable_of_paths(several, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("line")
    source = FileSource.text(several([str(tmp_path / "a"), tmp_path / "b"]))
    assert {os.path.basename(split.path) for split in source.splits(1)} == {"a", "b"}
