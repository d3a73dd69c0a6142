"""Files of a database in checkpoints: writing, reuse and restore.

**Writing** works on files that RocksDB has linked into a separate folder. These files never change.

**Reuse of uploaded files.** RocksDB never changes a sorted file (`*.sst`), and never reuses its number. So
within one database, the name of a sorted file identifies its content. Of these files, a checkpoint uploads
only those that the newest *confirmed* checkpoint does not have (`ConfirmableSnapshots`, as in the heap
backend). Without a known confirmed checkpoint it uploads all of them. It always uploads the small files that
list the sorted files. Names of different databases never mix: each backend has one database, and a new
attempt begins with the restored files under their old names.

**Restore at unchanged parallelism.** There is one old part, with exactly the key groups of this subtask. Its
files are downloaded and opened. No row is written.

**Restore at a changed parallelism.** The parts of several old subtasks each have some of the key groups. The
part with the most bytes for this subtask is downloaded and opened. Range deletions remove foreign rows at
almost no cost. The other parts are opened one by one. This subtask's rows of each part are written to new
sorted files, which RocksDB ingests unchanged. (RocksDB could also clip a database to a range, and ingest
the files of another database. `rocksdict` offers neither function.)

Deleted rows do not reappear. No two parts own the same key group, and only rows of a part's own key groups
are taken. An old part may still contain foreign rows that await compaction. They are marked as deleted there,
so reads never show them. The range deletion is older than the ingested rows, so it does not hide them.

**Expired entries.** Files of RocksDB may hold entries that had expired when they were saved. Each part
records the latest expired stamp by table. The restored time hides these entries if all parts were saved at
the same time. Otherwise, or with a longer TTL than before, they are deleted when the state is first used.
A snapshot that is taken earlier deletes them if the parts have recorded different stamps.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.io.rocksdb.database import Database, sorted_file_of
from penstock.runtime.io.rocksdb.rows import TableRows, group_bytes, table_of
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.state.captured_rows import Block, CapturedRows, write_chunk
from penstock.runtime.state.keyed_snapshot import StateFileReader, StateFileWriter

#: Suffix of files that never change.
SORTED_FILE: Final = ".sst"
#: The file that names the current manifest.
CURRENT: Final = "CURRENT"
#: RocksDB's file numbers have 64 bits, so at most 20 digits.
_STATE_FILE: Final = re.compile(rf"[0-9]{{1,20}}\.sst|MANIFEST-[0-9]{{1,20}}|{CURRENT}")


def is_state_file(name: str) -> bool:
    """Return whether a restore needs a file; logs are empty, and opening a database rewrites all other files.

    Example:
        >>> [is_state_file(name) for name in ("000012.sst", "CURRENT", "OPTIONS-000007", "../000012.sst")]
        [True, True, False, False]
    """
    return _STATE_FILE.fullmatch(name) is not None


def sorted_files(handle: KeyedStateHandle | None) -> dict[str, StateHandle]:
    """Return the files of a confirmed checkpoint that another checkpoint may reuse, by name."""
    if handle is None:
        return {}
    pairs = zip(handle.names, handle.files, strict=True)
    return {name: file for name, file in pairs if name.endswith(SORTED_FILE)}


#: Limits of a chunk, in entries and in bytes of rows.
_CHUNK_ENTRIES: Final = 1 << 15

_CHUNK_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CanonicalSnapshot:
    """All state, in the format that every backend reads; streamed in chunks.

    Attributes:
        described: The handle without files. The stamps in its `time` show which entries to leave out.
        linked: Folder of the linked files; `finish` deletes it.
        memory: Memory limit of all databases of this process, in bytes.
    """

    described: KeyedStateHandle
    linked: Path
    memory: int
    max_parallelism: int
    codec: ValueCodec

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Read all rows in their order and write them as chunks; blocks."""
        written, entries, described = [], 0, self.described
        with self.codec.for_another_thread() as codec:
            database = Database(self.linked, self.memory, read_only=True)
            try:
                for chunk in self._chunks(database, codec):
                    blocks = chunk.blocks(codec)
                    entries += chunk.entries
                    data = write_chunk(blocks, self.max_parallelism, described.key_groups, codec)
                    written.append(files.write(data))
            finally:
                database.close()
                shutil.rmtree(self.linked, ignore_errors=True)
        time = None if described.time is None else replace(described.time, expired=())
        return replace(described, files=tuple(written), entries=entries, time=time)

    def _chunks(self, database: Database, codec: ValueCodec) -> Iterator[_Chunk]:
        chunk, tables = _Chunk(), dict[bytes, TableRows]()
        key_groups, time = self.described.key_groups, self.described.time
        expired = {} if time is None else dict(time.expired)
        for row, data in database.rows(group_bytes(key_groups.first), group_bytes(key_groups.last + 1)):
            prefix, name, nested = table_of(row)
            rows = tables.get(prefix)
            if rows is None:
                rows = tables[prefix] = TableRows(name, nested, self.max_parallelism, codec)
            key, part, value = rows.decode(row, data)
            latest = expired.get(name)
            if latest is not None and is_expired(value, latest):
                continue
            chunk.add(rows, key, part, value, len(row) + len(data))
            if chunk.is_full:
                yield chunk
                chunk = _Chunk()
        if chunk.entries:
            yield chunk


@dataclass(slots=True)
class _Chunk:
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
        return [
            CapturedRows.encoded(rows.name, keys, values, codec, nested=rows.nested)
            for rows, keys, values in self.tables.values()
        ]


@dataclass(frozen=True, slots=True)
class NativeSnapshot:
    """All state as RocksDB's own files; only new ones are uploaded.

    Attributes:
        described: The handle without files. The stamps in its `time` show which entries have expired.
        linked: Folder of the linked files; `finish` deletes it.
        uploaded: The sorted files of a confirmed checkpoint, by name.
    """

    described: KeyedStateHandle
    linked: Path
    uploaded: Mapping[str, StateHandle]
    entries: int

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        try:
            names = sorted(name for name in os.listdir(self.linked) if is_state_file(name))
            handles = [self.uploaded.get(name) or files.write(self._read(name)) for name in names]
        except OSError as error:
            msg = f"the files of a checkpoint of RocksDB in {self.linked} can't be read: {error}"
            raise StorageError(msg) from error
        finally:
            shutil.rmtree(self.linked, ignore_errors=True)
        return replace(self.described, files=tuple(handles), entries=self.entries, names=tuple(names))

    def _read(self, name: str) -> bytes:
        return (self.linked / name).read_bytes()


#: Prefixes of RocksDB's corruption errors; the last one reports a missing file that another file names.
_DAMAGE: Final = ("Corruption:", "Invalid argument:", "Not implemented:", "IO error: No such file")
#: A key that sorts after the rows of all key groups.
_END: Final = b"\xff"


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Rows of a table in a restored part that had expired when the part was saved."""

    key_groups: range
    latest: int


def expired_rows(handles: Sequence[KeyedStateHandle], own: KeyGroupRange) -> dict[str, list[ExpiredRows]]:
    found: dict[str, list[ExpiredRows]] = {}
    for handle in handles:
        kept = handle.key_groups.intersection(own)
        for table, latest in () if handle.time is None else handle.time.expired:
            found.setdefault(table, []).append(ExpiredRows(range(kept.first, kept.last + 1), latest))
    return found


def is_expired(cell: tuple[int | None, object], latest: int) -> bool:
    stamp, _ = cell
    return stamp is not None and stamp <= latest


def download(handle: KeyedStateHandle, files: StateFileReader, folder: Path) -> None:
    """Write the files of a part into a folder, under their old names."""
    if CURRENT not in handle.names:  # without it RocksDB makes an empty database
        msg = f"the checkpoint names no file {CURRENT} of RocksDB among its {len(handle.names)} files"
        raise CorruptSnapshotError(msg)
    for name, file in zip(handle.names, handle.files, strict=True):
        if not is_state_file(name):
            msg = f"the checkpoint names {name!r:.80}, which is not a file of RocksDB's checkpoints"
            raise CorruptSnapshotError(msg)
        data = files.read(file)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        except OSError as error:
            msg = f"state can't be restored into {folder}: {error}. Give RocksDB(folder=...) a larger disk"
            raise StorageError(msg) from error


@contextmanager
def damage_as_corruption(operator: str) -> Iterator[None]:
    """Raise `CorruptSnapshotError` for damaged files.

    The files match the checksums of the checkpoint, so a retry would read the same damage.
    """
    try:
        yield
    except StorageError as error:
        # RocksDB's errors have no types.
        if isinstance(error, CorruptSnapshotError) or not str(error.__cause__).startswith(_DAMAGE):
            raise
        what = f"the checkpoint's RocksDB files of operator {operator!r} are damaged"
        msg = f"{what}: {error.__cause__}"
        raise CorruptSnapshotError(msg) from error


def largest_part(handles: Sequence[KeyedStateHandle], own: KeyGroupRange) -> KeyedStateHandle:
    """Return the part with the most bytes for a subtask, estimated from the sizes of its files."""

    def share(handle: KeyedStateHandle) -> float:
        size = sum(file.size for file in handle.files)
        return size * len(handle.key_groups.intersection(own)) / max(1, len(handle.key_groups))

    return max(handles, key=share)


def cut_off_foreign(database: Database, handle: KeyedStateHandle, own: KeyGroupRange) -> None:
    """Delete the rows outside of the key groups that both the part and this subtask own.

    Does nothing if this subtask owns all key groups of the part: other rows are marked as deleted already.
    """
    kept = handle.key_groups.intersection(own)
    if kept == handle.key_groups:
        return
    database.delete_range(b"", group_bytes(kept.first))
    database.delete_range(group_bytes(kept.last + 1), _END)


def take_over(
    database: Database,
    handle: KeyedStateHandle,
    files: StateFileReader,
    own: KeyGroupRange,
    scratch: Path,
) -> None:
    """Add this subtask's rows of another part to a database; makes the folder `scratch` and deletes it."""
    kept = handle.key_groups.intersection(own)
    try:
        download(handle, files, scratch / "part")
        part = Database(scratch / "part", database.memory.size, read_only=True)
        try:
            taken = part.rows(group_bytes(kept.first), group_bytes(kept.last + 1))
            for number, some in enumerate(_sliced(taken)):
                file = scratch / f"{number}.taken"
                sorted_file_of(some, file, database.memory)
                database.ingest(file)
        finally:
            part.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sliced(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """Yield non-empty slices of rows for files; each must be consumed before the next one."""
    taken = 0

    def number_of(row: tuple[bytes, bytes]) -> int:
        nonlocal taken
        taken += len(row[0]) + len(row[1])
        return taken // _SLICE_BYTES

    return (some for _, some in groupby(rows, number_of))


#: Bytes of rows that go into one sorted file.
_SLICE_BYTES: Final = 64 * 1024 * 1024
