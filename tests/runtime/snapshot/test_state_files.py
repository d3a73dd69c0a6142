"""The files of a subtask's state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.snapshot.handles import INLINE_LIMIT, FileHandle, InlineHandle
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.keyed_snapshot import read_in_turn

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


class Ahead(MemoryStorage):
    """Notes which objects it has started to read, and which ones were waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def start_get(self, path: str) -> Callable[[], bytes]:
        self.events.append(f"start {path}")

        def wait() -> bytes:
            self.events.append(f"wait {path}")
            return self.get(path)

        return wait


def test_the_next_file_is_read_while_one_is_used() -> None:
    storage = Ahead()
    files = files_in(storage)
    handles = [files.write(LARGE + bytes([number])) for number in range(3)]

    for number, (handle, data) in enumerate(read_in_turn([*handles, InlineHandle(b"i")], files)):
        storage.events.append(f"use {number}")
        assert data == (LARGE + bytes([number]) if number < 3 else b"i")
        assert handle == [*handles, InlineHandle(b"i")][number]

    assert storage.events == [
        *("start job/0", "start job/1", "wait job/0", "use 0"),
        *("start job/2", "wait job/1", "use 1"),
        *("wait job/2", "use 2", "use 3"),
    ]


def test_files_of_any_storage_are_read_in_turn(storage: MemoryStorage) -> None:
    files = files_in(storage)
    handles = [files.write(LARGE), files.write(b"i")]
    assert list(read_in_turn(handles, files)) == [(handles[0], LARGE), (handles[1], b"i")]
    assert list(read_in_turn([], files)) == []


def test_a_damaged_or_missing_file_that_was_read_ahead_is_found() -> None:
    storage = Ahead()
    files = files_in(storage)
    handles = [files.write(LARGE), files.write(LARGE + b"x"), files.write(LARGE + b"y")]
    storage.put("job/1", LARGE + b"z")
    turns = read_in_turn(handles, files)
    assert next(turns) == (handles[0], LARGE)
    with pytest.raises(CorruptSnapshotError, match=r"memory:/job/1 should be .* but is damaged"):
        next(turns)
    storage.delete(["job/2"])
    with pytest.raises(CorruptSnapshotError, match="memory:/job/2 is part of a snapshot but is not there"):
        files.start_read(handles[2])()
