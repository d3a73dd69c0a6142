"""The asynchronous half of a snapshot of state in RocksDB.

It works on files that RocksDB has linked into a folder of their own. Nobody writes to them any more, whatever
the task does meanwhile.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from penstock.runtime.errors import StorageError
from penstock.runtime.io.rocksdb.database import FrozenDatabase
from penstock.runtime.io.rocksdb.rows import TableRows, group_bytes, table_of
from penstock.runtime.io.rocksdb.uploaded_files import is_state_file
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    SavedState,
    SavedTime,
    StateHandle,
)
from penstock.runtime.state.keyed_blocks import encode_written
from penstock.runtime.state.keyed_changes import Block
from penstock.runtime.state.keyed_chunk import write_chunk
from penstock.runtime.state.keyed_snapshot import StateFileWriter

#: When a chunk is written: this many entries, or this many bytes of rows.
_CHUNK_ENTRIES: Final = 1 << 15
_CHUNK_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CanonicalSnapshot:
    """All state, in the format that every backend reads; streamed, chunk by chunk.

    Attributes:
        linked: The linked files; deleted when it is finished.
        memory: Bytes for all databases of this process.
        types: Declared types of the tables' values, by table.
        states: Kinds of the states that functions have used.
        time: What time it is for state with a TTL; entries that have expired are left out.
    """

    linked: Path
    memory: int
    key_groups: KeyGroupRange
    max_parallelism: int
    codec: ValueCodec
    types: tuple[tuple[str, str], ...]
    states: tuple[SavedState, ...]
    time: SavedTime | None

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Read all rows in their order and write them as chunks; blocks.

        Raises:
            StorageError: A file could not be written or read.
        """
        with self.codec.for_another_thread() as codec:
            database = FrozenDatabase(self.linked, self.memory)
            try:
                written, entries = self._write(database, files, codec)
            finally:
                database.close()
                shutil.rmtree(self.linked, ignore_errors=True)
        time = None if self.time is None else replace(self.time, expired=())
        return KeyedStateHandle(self.key_groups, tuple(written), entries, self.types, self.states, time=time)

    def _write(
        self, database: FrozenDatabase, files: StateFileWriter, codec: ValueCodec
    ) -> tuple[list[StateHandle], int]:
        written, entries = [], 0
        for chunk in self._chunks(database, codec):
            blocks = chunk.blocks(codec)
            entries += chunk.entries
            written.append(files.write(write_chunk(blocks, self.max_parallelism, self.key_groups, codec)))
        return written, entries

    def _chunks(self, database: FrozenDatabase, codec: ValueCodec) -> Iterator[_Chunk]:
        chunk, tables = _Chunk(), dict[bytes, TableRows]()
        expired = {} if self.time is None else dict(self.time.expired)
        first, end = group_bytes(self.key_groups.first), group_bytes(self.key_groups.last + 1)
        for row, data in database.rows(first, end):
            prefix, name, nested = table_of(row)
            rows = tables.get(prefix)
            if rows is None:
                rows = tables[prefix] = TableRows(name, nested, self.max_parallelism, codec)
            key, part, value = rows.decode(row, data)
            latest = expired.get(name)
            if latest is not None and value[0] is not None and value[0] <= latest:
                continue
            chunk.add(rows, key, part, value, len(row) + len(data))
            if chunk.is_full:
                yield chunk
                chunk = _Chunk()
        if chunk.entries:
            yield chunk


@dataclass(slots=True)
class _Chunk:
    """Entries until there are enough for a file, by table."""

    tables: dict[str, tuple[TableRows, list[Any], list[Any]]] = field(default_factory=dict)
    entries: int = 0
    size: int = 0

    def add(self, rows: TableRows, key: Any, part: Any, value: Any, size: int) -> None:
        _, keys, values = self.tables.setdefault(rows.name, (rows, [], []))
        keys.append((key, part) if rows.nested else key)
        values.append(value)
        self.entries += 1
        self.size += size

    @property
    def is_full(self) -> bool:
        return self.entries >= _CHUNK_ENTRIES or self.size >= _CHUNK_BYTES

    def blocks(self, codec: ValueCodec) -> list[Block]:
        blocks: list[Block] = []
        for rows, keys, values in self.tables.values():
            blocks += encode_written(rows.name, keys, values, codec, nested=rows.nested)
        return blocks


@dataclass(frozen=True, slots=True)
class NativeSnapshot:
    """All state as RocksDB's own files, of which only new ones are uploaded.

    Attributes:
        linked: The linked files; deleted when it is finished.
        uploaded: The sorted files that a confirmed checkpoint has, by name.
        entries: About how many entries there are.
        types: Declared types of the tables' values, by table.
        states: Kinds of the states that functions have used.
        time: What time it is for state with a TTL, and what the files still have that has expired.
    """

    linked: Path
    key_groups: KeyGroupRange
    uploaded: Mapping[str, StateHandle]
    entries: int
    types: tuple[tuple[str, str], ...]
    states: tuple[SavedState, ...]
    time: SavedTime | None

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Upload the files that no confirmed checkpoint has; blocks.

        Raises:
            StorageError: A file could not be written or read.
        """
        try:
            names = sorted(name for name in os.listdir(self.linked) if is_state_file(name))
            handles = [self.uploaded.get(name) or files.write(self._read(name)) for name in names]
        except OSError as error:
            msg = f"the files of a checkpoint of RocksDB in {self.linked} can't be read: {error}"
            raise StorageError(msg) from error
        finally:
            shutil.rmtree(self.linked, ignore_errors=True)
        return KeyedStateHandle(
            self.key_groups, tuple(handles), self.entries, self.types, self.states, tuple(names), self.time
        )

    def _read(self, name: str) -> bytes:
        return (self.linked / name).read_bytes()
