"""The files of a subtask's state."""

from __future__ import annotations

from itertools import count

import pytest

from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.snapshot.handles import INLINE_LIMIT, FileHandle, InlineHandle
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage

LARGE = b"x" * (INLINE_LIMIT + 1)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def files_in(storage: MemoryStorage) -> StateFiles:
    numbers = count()
    return StateFiles(storage, lambda: f"job/{next(numbers)}")


def test_small_state_stays_inline(storage: MemoryStorage) -> None:
    files = files_in(storage)
    assert files.write(b"x" * INLINE_LIMIT) == InlineHandle(b"x" * INLINE_LIMIT)
    assert storage.list("") == []
    assert files.written == []


def test_written_bytes_are_those_of_files_and_those_that_stay_inline(storage: MemoryStorage) -> None:
    files = files_in(storage)
    files.write(b"abc")
    files.write(LARGE)
    assert files.written_bytes == 3 + len(LARGE)
    files.remove_written()
    assert files.written_bytes == 0


def test_larger_state_gets_a_file_each(storage: MemoryStorage) -> None:
    files = files_in(storage)
    handles = [files.write(LARGE), files.write(LARGE + b"y")]
    assert files.written == handles
    assert storage.list("") == ["job/0", "job/1"]
    assert [files.read(handle) for handle in handles] == [LARGE, LARGE + b"y"]


def test_inline_state_is_read_without_the_storage(storage: MemoryStorage) -> None:
    assert files_in(storage).read(InlineHandle(b"abc")) == b"abc"


def test_damaged_file_is_found(storage: MemoryStorage) -> None:
    files = files_in(storage)
    handle = files.write(LARGE)
    assert isinstance(handle, FileHandle)
    storage.put(handle.path, LARGE[:-1] + b"?")
    with pytest.raises(CorruptSnapshotError, match="job/0"):
        files.read(handle)


def test_removal_takes_what_was_written_here_and_nothing_else(storage: MemoryStorage) -> None:
    storage.put("job/other", b"")
    files = files_in(storage)
    files.write(LARGE)
    files.remove_written()
    files.remove_written()
    assert storage.list("") == ["job/other"]
    assert files.written == []


def test_file_that_the_storage_took_although_it_said_no_is_removed_too() -> None:
    class Unsure(MemoryStorage):
        def put(self, path: str, data: bytes, *, create: bool = False) -> None:
            super().put(path, data, create=create)
            msg = "no answer"
            raise StorageError(msg)

    storage = Unsure()
    files = files_in(storage)
    with pytest.raises(StorageError):
        files.write(LARGE)
    assert storage.list("") == ["job/0"]
    assert files.written == []
    files.remove_written()
    assert storage.list("") == []
