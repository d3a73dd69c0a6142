"""The memory that RocksDB may use in this process, shared by all of its databases.

One block cache holds blocks of files, their indexes and filters. The write buffers are charged to it, so the
whole is bounded, however many operators of a process keep state in RocksDB. A quarter is kept for values that
Python has decoded (`cached_entries.py`); RocksDB knows nothing of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocksdict import Cache, WriteBufferManager


@dataclass
class SharedMemory:
    """What the databases of this process share.

    Attributes:
        size: Bytes in all.
        cache: Blocks of files; write buffers are charged to it.
        write_buffers: Counts the write buffers; flushes some when they are too large.
        tables: Open tables that hold decoded values.
    """

    size: int
    cache: Cache
    write_buffers: WriteBufferManager
    tables: int = 0

    @property
    def decoded_per_table(self) -> int:
        """Bytes that one table may hold decoded."""
        return self.size // 4 // max(1, self.tables)

    def grow(self, size: int) -> None:
        """Have at least this many bytes."""
        if size <= self.size:
            return
        self.size = size
        self.cache.set_capacity(_of_rocksdb(size))
        self.write_buffers.set_buffer_size(_of_buffers(size))


def shared_memory(size: int) -> SharedMemory:
    """The memory of this process: made at the first call, and grown when more is asked for later.

    Args:
        size: Bytes in all.
    """
    memory = _made(size)
    memory.grow(size)
    return memory


_ONE: list[SharedMemory] = []


def _made(size: int) -> SharedMemory:
    if not _ONE:
        from rocksdict import Cache, WriteBufferManager

        cache = Cache(_of_rocksdb(size))
        buffers = WriteBufferManager.new_write_buffer_manager_with_cache(_of_buffers(size), False, cache)
        _ONE.append(SharedMemory(size, cache, buffers))
    return _ONE[0]


def _of_rocksdb(size: int) -> int:
    return size - size // 4


def _of_buffers(size: int) -> int:
    """A third of RocksDB's part."""
    return size // 4
