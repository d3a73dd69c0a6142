"""A heap backend whose files are kept in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.runtime.errors import (
    StorageError,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.state_backend import BackendSetup

ALL = KeyGroupRange(0, 127)
NEVER = CompactionPolicy(max_files=100, growth=100.0)


class Files:
    """A store of files by path; `broken` makes every write fail."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.reads = 0
        self.broken = False

    def write(self, data: bytes) -> StateHandle:
        if self.broken:
            msg = "the disk is full"
            raise StorageError(msg)
        path = f"chk/{len(self.content)}"
        self.content[path] = data
        return FileHandle(path, len(data), "")

    def read(self, handle: StateHandle) -> bytes:
        self.reads += 1
        return handle.data if isinstance(handle, InlineHandle) else self.content[handle.path]


def new_backend(policy: CompactionPolicy = NEVER, own: KeyGroupRange = ALL) -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(BackendSetup("op", 128, own, ValueCodec()), policy)


def put(backend: HeapKeyedStateBackend, entries: dict[Any, Any], table: str = "t") -> None:
    backend.table(table).entries.update(entries)
    backend.table(table).changed.update(entries)


def delete(backend: HeapKeyedStateBackend, keys: Iterable[Any], table: str = "t") -> None:
    for key in keys:
        del backend.table(table).entries[key]
        backend.table(table).changed.add(key)


def take(
    backend: HeapKeyedStateBackend, files: Files, checkpoint_id: int, confirmed_id: int
) -> KeyedStateHandle:
    handle = backend.snapshot(checkpoint_id, confirmed_id).finish(files)
    backend.snapshot_finished(checkpoint_id, handle)
    return handle


def restored(handle: KeyedStateHandle, files: Files, table: str = "t") -> dict[Any, Any]:
    backend = new_backend(own=handle.key_groups)
    backend.restore([handle], files)
    return backend.table(table).entries
