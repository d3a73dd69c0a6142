from __future__ import annotations

import pytest
from obstore.store import LocalStore, MemoryStore

from penstock import ConnectorError, FileSource
from penstock.runtime.io.connectors import object_files
from penstock.runtime.io.connectors.filesystem import Publication
from penstock.runtime.io.connectors.object_files import (
    READ_AHEAD_BYTES,
    ObjectFileSystem,
    object_file_system,
)


def test_settings_of_the_store_and_of_its_client_are_told_apart():
    options = {"region": "eu-west-1", "endpoint": "http://localhost:1", "allow_http": "true", "timeout": "5s"}
    assert isinstance(object_file_system("s3://bucket/in/*.txt", options), ObjectFileSystem)
    with pytest.raises(ConnectorError, match=r"s3://bucket: .*'regoin' is not valid for store 'S3'\. Check"):
        object_file_system("s3://bucket/in/*.txt", {"regoin": "eu-west-1"})


def test_objects_larger_than_one_request_are_read_whole(read_all):
    store = MemoryStore()
    lines = ["é" * 499] * (2 * READ_AHEAD_BYTES // 1000)
    store.put("in/a.txt", "\n".join(lines).encode())
    files = ObjectFileSystem(store, "s3://bucket")
    for split_size in (1 << 40, 3_000_001):
        assert (
            read_all(FileSource.text("s3://bucket/in", split_size=split_size, filesystem=files)).rows == lines
        )


def test_an_unfinished_upload_leaves_nothing_to_read():
    store = MemoryStore()
    files = ObjectFileSystem(store, "s3://bucket")
    upload = files.create("s3://bucket/out", "a")
    upload.write(b"x" * 1000)
    upload.discard()
    assert files.names("s3://bucket/out", "") == []
    assert files.publish("s3://bucket/out", "a", "b") is Publication.MISSING


def test_all_files_are_deleted_where_a_store_stops_at_a_missing_one(tmp_path):
    (tmp_path / "out").mkdir()
    for name in "abcdefghijklmnop":
        (tmp_path / "out" / name).touch()
    files = ObjectFileSystem(LocalStore(tmp_path), "s3://bucket")
    files.delete("s3://bucket/out", ["missing", *"abcdefghijklmnop"])
    assert files.names("s3://bucket/out", "") == []


def test_names_are_those_directly_in_the_folder():
    store = MemoryStore()
    for key in ("out/a", "out/sub/a", "outer/a", "out/b"):
        store.put(key, b"")
    files = ObjectFileSystem(store, "s3://bucket")
    assert files.names("s3://bucket/out/", "") == ["a", "b"]
    assert files.names("s3://bucket/out", "a") == ["a"]


def test_small_files_are_fetched_together_and_need_no_other_request(context, drain, monkeypatch):
    store = MemoryStore()
    names = [f"{number:02}" for number in range(70)]
    for name in names:
        store.put(f"in/{name}.txt", name.encode())
    files = ObjectFileSystem(store, "s3://bucket")
    source = FileSource.text("s3://bucket/in", filesystem=files)
    reader = source.reader(context(), source.splits(1))
    fetched = []
    fetch = files.fetch
    monkeypatch.setattr(files, "fetch", lambda paths: (fetched.append(len(paths)), fetch(paths)))
    monkeypatch.delattr(ObjectFileSystem, "info")
    monkeypatch.delattr(object_files, "ObjectInputFile")
    assert drain(reader).rows == names
    assert fetched == [32, 32, 6]


def test_large_files_are_not_fetched(read_all, monkeypatch):
    store = MemoryStore()
    for name in "abcd":
        store.put(f"in/{name}.txt", (name * (300_000 if name == "c" else 3)).encode())
    files = ObjectFileSystem(store, "s3://bucket")
    fetched = []
    fetch = files.fetch
    monkeypatch.setattr(files, "fetch", lambda paths: (fetched.append(list(paths)), fetch(paths)))
    rows = read_all(FileSource.text("s3://bucket/in", filesystem=files)).rows
    assert [row[0] for row in rows] == list("abcd")
    assert fetched == [["s3://bucket/in/a.txt", "s3://bucket/in/b.txt"]]


@pytest.mark.parametrize(("content", "says"), [(None, "is gone"), (b"longer", "1 bytes then, 6 now")])
def test_a_small_file_that_is_gone_or_has_changed_is_named(context, drain, content, says):
    store = MemoryStore()
    for name in "abc":
        store.put(f"in/{name}.txt", name.encode())
    source = FileSource.text("s3://bucket/in", filesystem=ObjectFileSystem(store, "s3://bucket"))
    reader = source.reader(context(), source.splits(1))
    store.delete(["in/b.txt"])
    if content is not None:
        store.put("in/b.txt", content)
    with pytest.raises(ConnectorError, match=rf"s3://bucket/in/b\.txt .*{says}"):
        drain(reader)
