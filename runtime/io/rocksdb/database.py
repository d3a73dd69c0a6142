"""`Database`: one RocksDB in its own folder, with Penstock's settings.

The database has no write-ahead log. Its content is durable only in a checkpoint, and a checkpoint begins with
a flush. The database of a dead process is discarded.

Errors of RocksDB become a `StorageError` that names the folder or the file. `rocksdict` raises plain
`Exception`s, so the `try` blocks here contain little besides its calls.

**Memory** is shared by all databases of a process (`SharedMemory`). One block cache holds blocks of files,
their indexes and filters. The write buffers count towards that cache, so the total is bounded for any number
of operators with state in RocksDB. A quarter of the memory is reserved for values that Python has decoded
(`cached_entries.py`), outside of RocksDB.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.runtime.errors import ConfigurationError, StorageError
from penstock.runtime.io.rocksdb.rows import end_of, group_bytes, table_of

if TYPE_CHECKING:
    from rocksdict import Cache, Options, Rdict, RdictIter, ReadOptions, WriteBufferManager


@dataclass
class SharedMemory:
    """Resources shared by the databases of this process; `size` in bytes."""

    size: int
    cache: Cache
    write_buffers: WriteBufferManager
    tables: int = 0

    @property
    def decoded_per_table(self) -> int:
        """Maximum bytes of decoded values of one table."""
        return self.size // 4 // max(1, self.tables)

    def grow(self, size: int) -> None:
        if size <= self.size:
            return
        self.size = size
        self.cache.set_capacity(_of_rocksdb(size))
        self.write_buffers.set_buffer_size(_of_buffers(size))


_ONE: list[SharedMemory] = []


def shared_memory(size: int) -> SharedMemory:
    """Return the shared memory of this process; a larger `size` than before increases it."""
    try:
        if not _ONE:
            from rocksdict import Cache, WriteBufferManager

            cache = Cache(_of_rocksdb(size))
            buffers = WriteBufferManager.new_write_buffer_manager_with_cache(_of_buffers(size), False, cache)
            _ONE.append(SharedMemory(size, cache, buffers))
        _ONE[0].grow(size)
    except (ImportError, AttributeError) as error:
        msg = (
            f"RocksDB can't be used here: {error}. Install it on every node of the cluster: "
            "pip install 'penstock[rocksdb]'"
        )
        raise ConfigurationError(msg) from error
    return _ONE[0]


def _of_rocksdb(size: int) -> int:
    return size - size // 4


def _of_buffers(size: int) -> int:
    return size // 4


_MIB: Final = 1024 * 1024
#: Maximum size at which a memtable is flushed, and target size of a compacted file.
_WRITE_BUFFER: Final = 32 * _MIB

_FILE_SIZE: Final = 32 * _MIB
#: Sorted runs before a merge: more runs slow reads a little, and save uploads of checkpoints.
_MOST_RUNS: Final = 8
#: Maximum excess of a database's size over its live rows, in percent.
_MOST_WASTE: Final = 100

_BLOCK_SIZE: Final = 16 * 1024

_BLOOM_BITS: Final = 10

#: Names of failed actions, for error messages.
_READ, _WRITTEN, _OPENED = "read", "written", "opened"

_GONE: Final = "its subtask has ended"

_ROOM: Final = "Free space on this disk, or give RocksDB(folder=...) a folder on a larger disk"
_RIGHTS: Final = (
    "Give the user of the Ray workers the right to write there, or give RocksDB(folder=...) another folder"
)
_FILES: Final = "Raise the limit of open files of the Ray workers (ulimit -n)"
_RESTART: Final = (
    "A restart recreates the folder from the last checkpoint. If it fails again, check the disk, or give "
    "RocksDB(folder=...) a folder on another one"
)

#: Parts of error messages of RocksDB and the operating system, in lower case, and the advice for them.
_ADVICE: Final = (
    (("no space", "quota", "disk full", "file too large"), _ROOM),
    (("permission denied", "read-only"), _RIGHTS),
    (("too many open files",), _FILES),
)


def _advice(error: Exception) -> str:
    text = str(error).lower()
    return next((advice for parts, advice in _ADVICE if any(part in text for part in parts)), _RESTART)


class Database:
    """A RocksDB of one operator in one subtask; used by one thread at a time.

    Args:
        folder: Folder of the database; created if missing, except with `read_only`.
        memory: Bytes for all databases of this process.
        read_only: Open the files of a checkpoint, which stay as they are.
    """

    def __init__(self, folder: Path, memory: int, *, read_only: bool = False) -> None:
        self.folder = folder
        self.memory = shared_memory(memory)
        self.rows_written = 0
        self._is_closed = False
        self._db = self._open(read_only)

    def get(self, row: bytes) -> bytes | None:
        try:
            found: bytes | None = self._db.get(row)
        except Exception as error:
            raise self._failed(_READ, error) from error
        return found

    def write(self, written: Iterable[tuple[bytes, bytes]], deleted: Iterable[bytes] = ()) -> None:
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for row, value in written:
            batch[row] = value
        for row in deleted:
            del batch[row]
        if not len(batch):
            return
        self.rows_written += len(batch)
        with self._calling(_WRITTEN):
            self._db.write(batch, self._unlogged)

    def delete_range(self, first: bytes, end: bytes) -> None:
        with self._calling(_WRITTEN):
            self._db.delete_range(first, end, self._unlogged)

    def scan(self, prefix: bytes, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The current rows with a prefix, starting at `first`, in the order of their bytes."""
        return self.rows(max(prefix, first), end_of(prefix))

    def rows(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows from `first` up to `end`, exclusive.

        Without the bound RocksDB would walk over all deleted rows after `end` up to a live one.
        """
        options = self._read_options()
        if end is not None:
            options.set_iterate_upper_bound(end)
        with self._calling(_READ):
            at: RdictIter = self._db.iter(options)
            at.seek(first)
        try:
            while at.valid():
                yield at.key(), at.value()
                at.next()
            with self._calling(_READ):
                at.status()
        finally:
            del at  # before `options` and `end`: the iterator reads their memory

    def tables(self, key_group: int) -> Iterator[tuple[str, bool]]:
        """Name and nesting of each table with rows in a key group."""
        group = after = group_bytes(key_group)
        while (row := next((row for row, _ in self.scan(group, after)), None)) is not None:
            prefix, name, nested = table_of(row)
            yield name, nested
            after = group + prefix + b"\xff"

    def clear(self) -> None:
        self.delete_range(b"", b"\xff")

    def checkpoint(self, folder: Path) -> None:
        """Flush, and hard-link the files into another folder of the same disk."""
        from rocksdict import Checkpoint

        with self._calling(_WRITTEN):
            Checkpoint(self._db).create_checkpoint(str(folder))

    def ingest(self, file: Path) -> None:
        """Add a sorted file by moving it, without a copy."""
        from rocksdict import IngestExternalFileOptions

        options = IngestExternalFileOptions()
        options.set_move_files(True)
        with self._calling(_WRITTEN):
            self._db.ingest_external_file([str(file)], options)

    @property
    def estimated_rows(self) -> int:
        with self._calling(_READ):
            return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            # Closing flushes first. That fails on a full disk; the lost data is not needed.
            with suppress(Exception):
                self._db.close()

    def destroy(self) -> None:
        """Close the database and delete its files; may be called again."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self, read_only: bool) -> Rdict:
        from rocksdict import AccessType, Rdict, ReadOptions, WriteOptions

        self._read_options: Callable[[], ReadOptions] = ReadOptions
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        self._unlogged = WriteOptions()
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 (its stub takes it for a method)
        with self._calling(_OPENED):
            if not read_only:
                self.folder.mkdir(parents=True, exist_ok=True)
            elif not self.folder.is_dir():  # RocksDB would create it
                raise FileNotFoundError(_GONE)
            db = Rdict(str(self.folder), database_options(self.memory), access_type=access)
        db.set_write_options(self._unlogged)
        return db

    @contextmanager
    def _calling(self, done: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._failed(done, error) from error

    def _failed(self, done: str, error: Exception) -> StorageError:
        return StorageError(f"the RocksDB in {self.folder} could not be {done}: {error}. {_advice(error)}")


def database_options(memory: SharedMemory) -> Options:
    from rocksdict import (
        BlockBasedOptions,
        DBCompactionStyle,
        DBCompressionType,
        Options,
        UniversalCompactOptions,
    )

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(min(_WRITE_BUFFER, memory.size // 8))
    options.set_target_file_size_base(_FILE_SIZE)
    universal = UniversalCompactOptions()
    universal.max_size_amplification_percent = _MOST_WASTE
    options.set_level_zero_file_num_compaction_trigger(_MOST_RUNS)
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(universal)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_open_files(-1)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(_MIB)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_block_size(_BLOCK_SIZE)
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_format_version(5)
    options.set_block_based_table_factory(blocks)
    return options


def sorted_file_of(rows: Iterable[tuple[bytes, bytes]], file: Path, memory: SharedMemory) -> None:
    """Write rows, at least one and in the order of their bytes, as a file for `ingest`."""
    from rocksdict import SstFileWriter

    try:
        writer = SstFileWriter(database_options(memory))
        writer.open(str(file))
        for row, value in rows:
            writer[row] = value
        writer.finish()
    except StorageError:
        raise
    except Exception as error:
        msg = f"the sorted file {file} of RocksDB could not be written: {error}. {_advice(error)}"
        raise StorageError(msg) from error
