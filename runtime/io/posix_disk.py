"""`PosixDisk`: the `Disk` port on top of system calls.

The root may be reached through symbolic links, because the user has chosen it. Below it no link is followed.
Other users may write into the folder, or it may come from an archive that they made. A link in it would make
a job read, write or delete files outside of it. So each call opens the folders from the root down, one by
one, and refuses links, even ones created in between. Only plain files are read: a pipe or a device has no
end.

Files are readable by their owner only (0600, folders 0700), regardless of the umask: state is as confidential
as its records. A root that is writable by its group is a shared storage: there the group may read and write
everything (0660, 0770). Others have no access.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Final

#: Maximum bytes of one system call that writes, and of the first one that reads.
_CHUNK: Final = 8 * 1024 * 1024
#: Maximum bytes of any system call that reads.
_LARGEST_READ: Final = 64 * 1024 * 1024
#: Seconds within which a call must read its bytes for the next one to read twice as many.
_SHORT_READ: Final = 0.1

#: Error numbers of file systems that can't sync folders: they make names durable by themselves.
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})

#: Error numbers of opening a link that must not be followed.
_OF_LINKS: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})

_FOLDER: Final = os.O_DIRECTORY | os.O_CLOEXEC
#: Flag to open a folder only for lookups; where `O_PATH` exists, this needs no permission to list it.
_PASS: Final = getattr(os, "O_PATH", os.O_RDONLY)


class PosixDisk:
    """The files below an existing folder."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._is_shared = bool(os.stat(root).st_mode & stat.S_IWGRP)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        with self._parent(path) as (folder, name):
            fd = os.open(
                name,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
                0o600,
                dir_fd=folder,
            )
        try:
            if self._is_shared:
                os.fchmod(fd, 0o660)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest[:_CHUNK]) :]
            if sync and self._is_shared:
                os.fsync(fd)  # makes the mode durable, too
            elif sync:
                # `fdatasync` omits only the timestamps; it syncs the length, which reads need.
                getattr(os, "fdatasync", os.fsync)(fd)
        finally:
            os.close(fd)

    def link(self, path: str, to: str) -> None:
        with self._parent(path) as (folder, name), self._parent(to) as (target, new_name):
            os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=target, follow_symlinks=False)

    def rename(self, path: str, to: str) -> None:
        with self._parent(path) as (folder, name), self._parent(to) as (target, new_name):
            os.replace(name, new_name, src_dir_fd=folder, dst_dir_fd=target)

    def remove(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def read(self, path: str, on_progress: Callable[[], None] = lambda: None) -> bytes:
        with self._parent(path) as (folder, name):
            # A pipe would block and a device may do anything, so neither is opened.
            with suppress(FileNotFoundError):
                _require_plain(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode, name)
            fd = _open_below(folder, name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _require_plain(os.fstat(fd).st_mode, name)  # the file may have been replaced in between
            return _content(fd, on_progress)
        finally:
            os.close(fd)

    def make_folder(self, path: str) -> None:
        if path:
            with self._parent(path) as (folder, name):
                os.mkdir(name, 0o700, dir_fd=folder)
                if self._is_shared:
                    _share(folder, name)
        else:
            os.makedirs(self._root, 0o700)

    def remove_folder(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def open_folder(self, path: str) -> PosixFolder:
        return PosixFolder(self._at(path), self._open(path, os.O_RDONLY))

    def names(self, path: str) -> tuple[list[str], list[str]]:
        files: list[str] = []
        folders: list[str] = []
        fd = self._open(path, os.O_RDONLY)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        finally:
            os.close(fd)
        return files, folders

    def sync_way_up(self) -> None:
        folder = os.path.dirname(self._root)
        while True:
            try:
                PosixFolder(folder).sync()
            except PermissionError:
                return  # without access, this user can't have made a folder here
            above = os.path.dirname(folder)
            if above == folder:
                return
            folder = above

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        above, _, name = path.rpartition("/")
        fd = self._open(above, _PASS)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def _open(self, folder: str, flags: int) -> int:
        names = folder.split("/") if folder else []
        fd = os.open(self._root, _FOLDER | (_PASS if names else flags))
        for depth, name in enumerate(names, 1):
            try:
                below = _open_below(fd, name, _FOLDER | (_PASS if depth < len(names) else flags))
            finally:
                os.close(fd)
            fd = below
        return fd


def _content(fd: int, on_progress: Callable[[], None]) -> bytes:
    """Read a file into one piece of memory, which grows in place.

    After each call this thread waits for the interpreter's lock, perhaps while another thread decodes state.
    So calls read more while they are fast; each one is reported as progress.
    """
    content, read, most = BytesIO(), 0, _CHUNK
    size = os.fstat(fd).st_size
    while read < size:
        wanted = min(most, size - read)
        content.seek(read + wanted - 1)
        content.write(b"\0")
        begun = time.monotonic()
        with content.getbuffer() as memory:
            got = os.readv(fd, [memory[read : read + wanted]])
        if not got:
            break
        read += got
        on_progress()
        if time.monotonic() - begun < _SHORT_READ:
            most = min(2 * most, _LARGEST_READ)
    content.truncate(read)
    content.seek(read)
    while chunk := os.read(fd, _CHUNK):  # the file has grown, or its system does not know its size
        content.write(chunk)
        on_progress()
    return content.getvalue()


def _open_below(folder: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in _OF_LINKS and _is_link(folder, name):
            msg = "it is a symbolic link, and links in a storage are not followed"
            raise OSError(errno.ELOOP, msg, name) from error
        raise


def _share(folder: int, name: str) -> None:
    """Let the group of a new folder read and write it; keeps the set-group-ID bit."""
    fd = _open_below(folder, name, os.O_RDONLY | _FOLDER)
    try:
        os.fchmod(fd, 0o770 | os.fstat(fd).st_mode & stat.S_ISGID)
    finally:
        os.close(fd)


def _is_link(folder: int, name: str) -> bool:
    with suppress(FileNotFoundError):  # another process has just removed it
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _require_plain(mode: int, name: str) -> None:
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):  # opening a link gives a better error
        raise OSError(errno.EINVAL, "it is not a regular file", name)


class PosixFolder:
    """An open folder, closed with its last reference; takes over the descriptor `fd`, or opens one."""

    def __init__(self, path: str, fd: int | None = None) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | _FOLDER) if fd is None else fd
        found = os.fstat(self._fd)
        self._identity = found.st_dev, found.st_ino

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise

    def is_still_there(self) -> bool:
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def __del__(self) -> None:
        fd = getattr(self, "_fd", None)  # missing if the folder could not be opened
        if fd is not None:
            os.close(fd)
