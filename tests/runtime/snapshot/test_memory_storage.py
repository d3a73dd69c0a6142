from __future__ import annotations

import pytest

from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.runtime.snapshot.storage import MemoryStorage


def test_create_loses_against_what_is_there() -> None:
    storage = MemoryStorage()
    storage.put("a/b", b"1", create=True)
    with pytest.raises(ObjectExistsError, match="memory:/a/b"):
        storage.put("a/b", b"2", create=True)
    assert storage.get("a/b") == b"1"
    storage.put("a/b", b"2")
    assert storage.get("a/b") == b"2"


def test_only_what_lies_in_the_folder_is_listed() -> None:
    storage = MemoryStorage()
    for path in ("a/2", "a/1", "ab/1", "a/c/1"):
        storage.put(path, b"")
    assert storage.list("a/") == ["a/1", "a/2", "a/c/1"]
    assert len(storage.list("")) == 4


def test_what_is_not_there_can_be_deleted_but_not_read() -> None:
    storage = MemoryStorage()
    storage.put("a", b"1")
    storage.delete(["a", "b"])
    with pytest.raises(ObjectNotFoundError, match="memory:/a does not exist"):
        storage.get("a")


def test_bad_paths_are_refused_by_every_call() -> None:
    storage = MemoryStorage()
    for call in (
        lambda: storage.put("../a", b""),
        lambda: storage.get("../a"),
        lambda: storage.list("../"),
        lambda: storage.delete(["../a"]),
    ):
        with pytest.raises(StorageError):
            call()
