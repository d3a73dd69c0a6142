"""`ScratchFolder`: where a database lies while its subtask runs.

It holds nothing that a restart needs. So it is removed with its subtask. A process that is killed removes
nothing. Therefore each owner holds a lock in its folder for as long as it lives. A new owner removes the
folders beside its own whose locks are free. The operating system gives the lock of a dead process back,
also where several containers share a disk and can't see each other's processes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.runtime.errors import StorageError

_NAME: Final = "penstock-state"
_LOCK: Final = "owner"


class ScratchFolder:
    """A folder of its own, until `remove`.

    Args:
        place: Where it is made; `None` for the temporary folder of the node.

    Raises:
        StorageError: It can't be made.
    """

    def __init__(self, place: Path | None = None) -> None:
        root = (Path(tempfile.gettempdir()) if place is None else place) / f"{_NAME}-{os.getuid()}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            remove_abandoned(root)
            self.path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=root))
            lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            msg = (
                f"there is no scratch space for RocksDB in {root}: {error}. Give RocksDB(folder=...) a "
                "folder that can be written, or let TMPDIR of the nodes name one"
            )
            raise StorageError(msg) from error

    def remove(self) -> None:
        """Delete it and everything in it; more than once does no harm."""
        self._remove()


def _remove(path: Path, lock: int, owner: int) -> None:
    """Also called when nobody has the object any more, and at the end of the process."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_abandoned(root: Path) -> int:
    """Delete the folders whose owners are dead; returns their number."""
    removed = 0
    for folder in root.iterdir():
        with suppress(OSError):  # it is being removed, or its owner has just begun
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed
