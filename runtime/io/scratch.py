"""Private files of a process on the disk of its node: `ScratchFolder` and `TemporarySpillFile`.

**Scratch folders** hold a database while its subtask runs, or Spark's files during a session. A restart needs
none of these files, so the owner removes its folder, unless it is killed. Therefore each owner locks its
folder as long as it lives, and a new owner removes the neighbouring folders whose locks are free. The
operating system releases the lock of a dead process, even where several containers share a disk and can't see
each other's processes.

RocksDB executes nothing from its files, but their values may be unpickled. The parent may be world-writable,
as `/tmp` is. So each folder is new, has an unguessable name and is accessible only by its owner (0700).
Processes never share a name: otherwise the first process would own the files of the second. Folders of other
users are not touched, and links are not followed.

**A spill file** has no name. Other processes can't open it, and it disappears with its process. A write is
passed to the operating system at once, at a known position. So a failed write loses nothing: earlier writes
remain, and the space of the failed write is released.
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
from typing import IO, Final

from penstock.runtime.errors import StorageError

#: Minimum bytes of one read, unless the file ends before.
_READ_AHEAD: Final = 1024 * 1024

_ROOM: Final = (
    "Set TMPDIR on the nodes to a folder with more space, or set a larger alignment_memory or a smaller "
    "max_alignment_bytes"
)

_DISK: Final = "Check the disk of the node, or set TMPDIR on the nodes to a folder on another disk"


def open_spill_file(folder: Path | None = None) -> TemporarySpillFile:
    """Make a new unnamed file in a folder, by default the temporary folder of the node.

    Example:
        >>> file = open_spill_file()
        >>> file.append(b"first")
        >>> file.append(b"second")
        >>> file.read(5), file.read(100)
        (b'first', b'second')
        >>> file.close()
    """
    place = Path(tempfile.gettempdir()) if folder is None else folder
    try:
        file = tempfile.TemporaryFile(dir=place, buffering=0)  # noqa: SIM115
    except OSError as error:
        raise StorageError(_spill_message("stored", place, error, _ROOM)) from error
    return TemporarySpillFile(file, place)


class TemporarySpillFile:
    """A `SpillFile` on a local disk; owns the unbuffered file."""

    def __init__(self, file: IO[bytes], place: Path) -> None:
        self._file = file
        self._place = place
        self._end = 0
        self._position = 0
        self._ahead = b""
        self._ahead_from = 0

    def append(self, data: bytes) -> None:
        end, left = self._end, memoryview(data)
        try:
            while left:
                written = os.pwrite(self._file.fileno(), left, end)
                end += written
                left = left[written:]
        except OSError as error:
            self._give_room_back()
            raise StorageError(_spill_message("written", self._place, error, _ROOM)) from error
        self._end = end

    def read(self, size: int) -> bytes:
        size = min(size, self._end - self._position)
        first = self._position - self._ahead_from
        if first + size > len(self._ahead):
            self._read_ahead(size)
            first = 0
        self._position += size
        return self._ahead[first : first + size]

    def close(self) -> None:
        self._ahead = b""
        self._file.close()

    def _read_ahead(self, size: int) -> None:
        wanted = min(max(size, _READ_AHEAD), self._end - self._position)
        parts, at = [], self._position
        try:
            while at < self._position + wanted:
                part = os.pread(self._file.fileno(), self._position + wanted - at, at)
                if not part:
                    raise OSError(f"it ends after {at} of {self._end} bytes")  # noqa: EM102
                parts.append(part)
                at += len(part)
        except OSError as error:
            raise StorageError(_spill_message("read", self._place, error, _DISK)) from error
        self._ahead, self._ahead_from = b"".join(parts), self._position

    def _give_room_back(self) -> None:
        """Truncate a failed write; a failure here does no harm, because the next write overwrites it."""
        with suppress(OSError):
            os.ftruncate(self._file.fileno(), self._end)


def _spill_message(what: str, place: Path, error: OSError, advice: str) -> str:
    return f"elements of blocked channels could not be {what} in {place}: {error}. {advice}"


_LOCK: Final = "owner"

_STATE: Final = "state"

_REMEDY: Final = "Give RocksDB(folder=...) a folder that can be written, or set TMPDIR on the nodes to one"


class ScratchFolder:
    """A new private folder that exists until `remove`.

    Args:
        place: Parent folder; `None` for the temporary folder of the node.
        kind: Part of the folder's name. Abandoned folders of other kinds are left alone.
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
            new = self.path / f"{_LOCK}.new"
            lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(self.path / _LOCK)  # only now, so other owners never find it free
        except OSError as error:
            owner = "RocksDB" if kind == _STATE else kind
            msg = f"there is no scratch space for {owner} in {root}: {error}. {remedy}"
            raise StorageError(msg) from error

    def remove(self) -> None:
        self._remove()


def _remove(path: Path, lock: int, owner: int) -> None:
    """Delete the folder in its owner's process; also runs when the object is collected, and at exit."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_abandoned(root: Path, kind: str = _STATE) -> int:
    """Delete this user's folders whose owners are dead; return their number."""
    removed = 0
    for folder in root.glob(f"{_name(kind)}-*"):
        with suppress(OSError):  # it is being removed, or its owner lives
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
