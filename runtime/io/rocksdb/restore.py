"""How a database gets the state of a checkpoint that other databases have written.

**At unchanged parallelism** there is one old part, with exactly the key groups of this subtask. Its files are
downloaded and opened. Not one row is written.

**At another one** there are parts of several old subtasks, of which each has some of the key groups. The part
with the most bytes for this subtask is downloaded and opened. Foreign rows are cut off with deletions of
ranges, which cost nothing now. The other parts are opened one by one to be read. Their rows of
this subtask go into a new sorted file each, in order, and RocksDB takes that over as it is.

Nothing that was deleted comes back by that. No two parts own the same key group, and of each part only rows
of its own key groups are taken. An old part may hold foreign rows that wait to be compacted away. They are
deleted in it, so reading never shows them. What is taken over lies above the deletion of the range.

**What has expired.** Files of RocksDB may hold entries that had expired when they were saved. Each part says
by table up to which stamp. The restored time hides them where all parts were saved at one time. Otherwise, or
with a longer TTL than before, they are deleted when the state is first used.

RocksDB could also clip a database to a range and take over the sorted files of another one as they are. The
package that Penstock uses offers neither.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.runtime.errors import CorruptSnapshotError, StorageError
from penstock.runtime.io.rocksdb.database import Database, FrozenDatabase, sorted_file_of
from penstock.runtime.io.rocksdb.rows import group_bytes
from penstock.runtime.io.rocksdb.uploaded_files import CURRENT, is_state_file
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange
from penstock.runtime.state.keyed_snapshot import StateFileReader

#: How RocksDB's errors of damage begin; the last one is about a file that another one names.
_DAMAGE: Final = ("Corruption:", "Invalid argument:", "Not implemented:", "IO error: No such file")
#: Behind the rows of all key groups.
_END: Final = b"\xff"


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Rows of a table in a restored part that had expired when the part was saved.

    Attributes:
        key_groups: Key groups of the part that this subtask has.
        latest: The latest stamp of these rows.
    """

    key_groups: range
    latest: int


def expired_rows(handles: Sequence[KeyedStateHandle], own: KeyGroupRange) -> dict[str, list[ExpiredRows]]:
    """By table, what the parts still hold that had expired."""
    found: dict[str, list[ExpiredRows]] = {}
    for handle in handles:
        kept = handle.key_groups.intersection(own)
        for table, latest in () if handle.time is None else handle.time.expired:
            found.setdefault(table, []).append(ExpiredRows(range(kept.first, kept.last + 1), latest))
    return found


def is_expired(cell: tuple[int | None, object], latest: int) -> bool:
    """Whether a stamped value was last used at this time or before."""
    stamp, _ = cell
    return stamp is not None and stamp <= latest


def download(handle: KeyedStateHandle, files: StateFileReader, folder: Path) -> int:
    """Write the files of a part into a folder, under the names that they had; returns their bytes.

    Raises:
        CorruptSnapshotError: A file is damaged, has a name that no file of a checkpoint has, or is not there;
            names it.
        StorageError: A file could not be read, or the disk is full.
    """
    if CURRENT not in handle.names:  # without it RocksDB makes an empty database
        msg = f"the checkpoint names no file {CURRENT} of RocksDB among {len(handle.names)} files"
        raise CorruptSnapshotError(msg)
    size = 0
    for name, file in zip(handle.names, handle.files, strict=True):
        if not is_state_file(name):
            msg = f"the checkpoint names a file {name!r:.80} of RocksDB, which no checkpoint has"
            raise CorruptSnapshotError(msg)
        data = files.read(file)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        except OSError as error:
            msg = f"state can't be restored into {folder}: {error}. Give RocksDB(folder=...) a larger disk"
            raise StorageError(msg) from error
        size += len(data)
    return size


@contextmanager
def opened_as_written(operator: str) -> Iterator[None]:
    """What RocksDB finds damaged in downloaded files was damaged, or changed, before they were stored.

    Their checksums are those of the checkpoint. So another try would find the same.

    Raises:
        CorruptSnapshotError: RocksDB can't use the files.
        StorageError: Anything else, such as a full disk.
    """
    try:
        yield
    except StorageError as error:
        if isinstance(error, CorruptSnapshotError) or not _is_damage(error.__cause__):
            raise
        what = f"what the checkpoint has of operator {operator!r} is no RocksDB that it has written"
        msg = f"{what}: {error.__cause__}"
        raise CorruptSnapshotError(msg) from error


def _is_damage(error: BaseException | None) -> bool:
    """Whether RocksDB says so: its errors have no types, and begin with the name of their kind."""
    return str(error).startswith(_DAMAGE)


def largest_part(handles: Sequence[KeyedStateHandle], own: KeyGroupRange) -> KeyedStateHandle:
    """The part with the most bytes for a subtask, as far as its sizes tell."""

    def share(handle: KeyedStateHandle) -> float:
        size = sum(file.size for file in handle.files)
        return size * len(handle.key_groups.intersection(own)) / max(1, len(handle.key_groups))

    return max(handles, key=share)


def cut_off_foreign(database: Database, handle: KeyedStateHandle, own: KeyGroupRange) -> None:
    """Delete the rows of all key groups that a part did not own, or that this subtask does not own."""
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
    """Add the rows of another part to a database; reads the part, writes one sorted file.

    Args:
        scratch: A folder that is not there yet; it is gone when this returns.
    """
    kept = handle.key_groups.intersection(own)
    try:
        download(handle, files, scratch / "part")
        part = FrozenDatabase(scratch / "part", database.memory.size)
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
    """Rows in slices of a good size for a file, each to be used up before the next one; none is empty."""
    for first in rows:
        yield _slice(first, rows)


def _slice(first: tuple[bytes, bytes], rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    left = _SLICE_BYTES
    while True:
        yield first
        left -= len(first[0]) + len(first[1])
        if left <= 0:
            return
        following = next(rows, None)
        if following is None:
            return
        first = following


#: Bytes of rows that go into one sorted file.
_SLICE_BYTES: Final = 64 * 1024 * 1024
