"""`PosixDisk`: the `Disk` port by the calls of the operating system."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Bytes of one write or read: a call that takes long lets the other threads run.
_CHUNK: Final = 8 * 1024 * 1024

#: What a file system answers that knows no sync of folders: it has made the names durable by itself.
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class PosixDisk:
    """The files below a folder.

    Args:
        root: The folder; it must be there.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a new file; see the port."""
        fd = os.open(self._at(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest[:_CHUNK]) :]
            if sync:
                # It leaves out times alone; the length, which reading needs, is in it.
                getattr(os, "fdatasync", os.fsync)(fd)
        finally:
            os.close(fd)

    def link(self, path: str, to: str) -> None:
        """Give a file a second name; see the port."""
        os.link(self._at(path), self._at(to))

    def rename(self, path: str, to: str) -> None:
        """Rename a file; see the port."""
        os.replace(self._at(path), self._at(to))

    def remove(self, path: str) -> None:
        """Remove a name of a file; see the port."""
        os.unlink(self._at(path))

    def read(self, path: str, on_progress: Callable[[], None] = lambda: None) -> bytes:
        """The content of a file; see the port."""
        with open(self._at(path), "rb", buffering=0) as file:
            chunks = []
            while chunk := file.read(_CHUNK):
                chunks.append(chunk)
                on_progress()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def make_folder(self, path: str) -> None:
        """Make one folder; see the port."""
        if path:
            os.mkdir(self._at(path))
        else:
            os.makedirs(self._root)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; see the port."""
        os.rmdir(self._at(path))

    def open_folder(self, path: str) -> PosixFolder:
        """Open a folder; see the port."""
        return PosixFolder(self._at(path))

    def names(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the files and of the folders in a folder; see the port."""
        files: list[str] = []
        folders: list[str] = []
        with os.scandir(self._at(path)) as entries:
            for entry in entries:
                (folders if entry.is_dir() else files).append(entry.name)
        return files, folders

    def sync_way_up(self) -> None:
        """Make the names of the root and of all folders above it durable, as far as they can be opened."""
        folder = os.path.dirname(self._root)
        while True:
            try:
                PosixFolder(folder).sync()
            except PermissionError:
                return  # nobody has made a folder here who is not allowed to look into it
            above = os.path.dirname(folder)
            if above == folder:
                return
            folder = above

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class PosixFolder:
    """An open folder; closed when nobody holds it any more.

    Args:
        path: Where it is.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self._fd)
        self._identity = found.st_dev, found.st_ino

    def sync(self) -> None:
        """Make the names in it durable."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise

    def is_still_there(self) -> bool:
        """Whether its path still leads to it."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def __del__(self) -> None:
        fd = getattr(self, "_fd", None)  # there is none if it could not be opened
        if fd is not None:
            os.close(fd)
