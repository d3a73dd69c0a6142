"""The peak memory of a piece of work, in processes that exist before and after it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

#: Seconds between two checks.
_LOOK: Final = 0.01


class Grown:
    """Growth of the memory of processes since this object was made.

    Args:
        pids: Ids of the processes.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = self._now()
        self._most = 0

    @property
    def most(self) -> int:
        """Peak growth of all processes together so far, in bytes."""
        return self._most

    def look(self) -> None:
        """Sample the processes now."""
        self._most = max(self._most, self._now() - self._before)

    def _now(self) -> int:
        return sum(map(private_bytes, self._pids))


@contextmanager
def grown(pids: Sequence[int]) -> Iterator[Grown]:
    """Sample processes, which may include this one, every hundredth of a second while the body runs.

    First returns freed memory of this process to the system. Otherwise work that reuses this memory would
    seem to need none.
    """
    _give_back()
    seen, done = Grown(pids), threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK):
            seen.look()

    thread = threading.Thread(target=watch, name="grown", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.look()
        done.set()
        thread.join()


def _give_back() -> None:
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError):  # only glibc has it, and keeps up to 64 MB of freed memory
        ctypes.CDLL(None).malloc_trim(0)


def private_bytes(pid: int) -> int:
    """The resident bytes of a process without shared pages, such as objects of Ray's store."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
