"""Backends in RocksDB whose files are in memory, and closed when a test has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.io.rocksdb.backend import RocksDBKeyedStateBackend
from penstock.runtime.ports import Clock
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.state_backend import BackendSetup

MIB = 1024 * 1024
GROUPS = 16
ALL = KeyGroupRange(0, GROUPS - 1)
PLACE = Path("/dev/shm")
_OPEN: list[RocksDBKeyedStateBackend] = []


class Files:
    """A store of files by path, which counts what is written; `broken` makes every write fail."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.number = 0
        self.broken = False

    def write(self, data: bytes) -> StateHandle:
        if self.broken:
            msg = "the store is gone"
            raise StorageError(msg)
        self.number += 1
        path = f"shared/{self.number}"
        self.content[path] = data
        return FileHandle(path, len(data), "")

    def read(self, handle: StateHandle) -> bytes:
        if isinstance(handle, InlineHandle):
            return handle.data
        if handle.path not in self.content:
            msg = f"{handle.path} is gone"
            raise CorruptSnapshotError(msg)
        return self.content[handle.path]

    @property
    def size(self) -> int:
        return sum(map(len, self.content.values()))


def opened(
    own: KeyGroupRange = ALL,
    *,
    memory: int = 8 * MIB,
    clock: Clock | None = None,
    codec: ValueCodec | None = None,
    place: Path = PLACE,
) -> RocksDBKeyedStateBackend:
    setup = BackendSetup("count", GROUPS, own, codec or ValueCodec(), clock=clock)
    backend = RocksDBKeyedStateBackend(setup, memory, place)
    _OPEN.append(backend)
    return backend


def close_all() -> None:
    while _OPEN:
        _OPEN.pop().close()


def put(backend: Any, entries: dict[Any, Any], table: str = "t") -> None:
    backend.table(table).entries.update(entries)
    backend.table(table).changed.update(entries)


def delete(backend: Any, *keys: Any, table: str = "t") -> None:
    for key in keys:
        del backend.table(table).entries[key]
        backend.table(table).changed.add(key)


def take(backend: Any, files: Files, checkpoint_id: int, confirmed_id: int = -1) -> KeyedStateHandle:
    handle: KeyedStateHandle = backend.snapshot(checkpoint_id, confirmed_id).finish(files)
    backend.snapshot_finished(checkpoint_id, handle)
    return handle


def savepoint(backend: Any, files: Files, checkpoint_id: int) -> KeyedStateHandle:
    handle: KeyedStateHandle = backend.snapshot(checkpoint_id, -1, self_contained=True).finish(files)
    return handle


def restored(
    handles: list[KeyedStateHandle],
    files: Files,
    own: KeyGroupRange = ALL,
    restored_id: int | None = None,
    clock: Clock | None = None,
) -> RocksDBKeyedStateBackend:
    backend = opened(own, clock=clock)
    mine = [handle for handle in handles if len(handle.key_groups.intersection(own))]
    backend.restore(mine, files, restored_id)
    return backend


def rescaled(
    handles: list[KeyedStateHandle], files: Files, parallelism: int, restored_id: int | None = None
) -> list[RocksDBKeyedStateBackend]:
    ranges = [key_group_range(index, parallelism, GROUPS) for index in range(parallelism)]
    return [restored(handles, files, own, restored_id) for own in ranges]


def held(*backends: Any, table: str = "t") -> dict[Any, Any]:
    """All entries; none is in two backends."""
    pairs = [pair for backend in backends for pair in backend.table(table).entries.items()]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)
