"""`ScratchFolder`: folder of a database while its subtask runs, or of Spark's files during a session.

The folder holds nothing that a restart needs, so its owner removes it. A killed process can't remove its
folder. Therefore each owner locks its folder as long as it lives. A new owner removes the neighbouring
folders whose locks are free. The operating system releases the lock of a dead process, even where several
containers share a disk and can't see each other's processes.

RocksDB runs no code of its files, but their values are unpickled. The place may be world-writable, as `/tmp`
is. So each folder is new, has an unguessable name and is accessible by its owner only (0700). Processes never
share a name: the first one would own the files of the other. Folders of other users are left alone, and links
are not followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.runtime.errors import StorageError

_LOCK: Final = "owner"
_STATE: Final = "state"
_REMEDY: Final = "Give RocksDB(folder=...) a folder that can be written, or let TMPDIR of the nodes name one"


class ScratchFolder:
    """A new private folder that exists until `remove`.

    Args:
        place: Parent folder; `None` for the temporary folder of the node.
        kind: Part of its name. Abandoned folders of other kinds are left alone.
        remedy: Advice for the error when the folder can't be made.
    """

    def __init__(
        self,
        place: Path | None = None,
        *,
        kind: str = _STATE,
        remedy: str = _REMEDY,
    ) -> None:
        root = Path(tempfile.gettempdir()) if place is None else place
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_abandoned(root, kind)
            self.path = Path(tempfile.mkdtemp(prefix=f"{_name(kind)}-{os.getpid()}-", dir=root))
            lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            owner = "RocksDB" if kind == _STATE else kind
            msg = f"there is no scratch space for {owner} in {root}: {error}. {remedy}"
            raise StorageError(msg) from error

    def remove(self) -> None:
        self._remove()


def _remove(path: Path, lock: int, owner: int) -> None:
    """Also called when the last reference ends, and at the end of the process."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_abandoned(root: Path, kind: str = _STATE) -> int:
    """Delete this user's folders whose owners are dead; return their number."""
    removed = 0
    for folder in root.glob(f"{_name(kind)}-*"):
        with suppress(OSError):  # it is being removed, or its owner has just started
            lock = _lock_of(folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed


def _name(kind: str) -> str:
    return f"penstock-{kind}-{os.geteuid()}"


def _lock_of(folder: Path) -> int:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
        return os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
    finally:
        os.close(opened)
