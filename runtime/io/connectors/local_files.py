"""Files on a local or mounted disk.

Publishing is `link` then `unlink`. `link` fails when the final name is taken, so it overwrites nothing.
A crash between the two leaves both names on one inode, which the next attempt recognises. Without hard links,
the final name is checked before a `rename`, which could overwrite a file that was made in between.

A power cut must not lose output that a checkpoint counts as written or committed. The next checkpoint after a
commit forgets the old name, so no attempt would search for the file again. Three syncs prevent that loss.

1. Content and name of a file are synced before it counts as written (`LocalOutputFile.finish`).
2. `publish` syncs the directory before it returns, even when the file already has its final name. Another
   process may have renamed it and died before its own sync.
3. The directory's name is synced in its parent, and so on up to the root, before any file is written there.
   Another writer may have made the directory, so every writer syncs it.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile, OutputFile, Publication
from penstock.runtime.io.posix_disk import PosixDisk, PosixFolder
from penstock.runtime.redaction import has_password
from penstock.runtime.trust.paths import is_glob, literal_folder

#: Error numbers of `link` on file systems without hard links.
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalOutputFile:
    """A new file in an existing folder; raises an `OSError` if the name is taken."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115 - finish or discard closes it

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        PosixFolder(os.path.dirname(self._path)).sync()

    def discard(self) -> None:
        try:
            self._file.close()
        finally:
            _unlink_if_there(self._path)


def _matching(pattern: str) -> Iterator[str]:
    head, recursive, rest = f"{pattern}/".partition("/**/")
    if not recursive:
        yield from glob.iglob(pattern, include_hidden=True)
        return
    seen: set[tuple[int, int]] = set()
    for base in glob.iglob(head or "/", include_hidden=True):
        for folder in _folders(base, seen):
            yield from _matching(os.path.join(glob.escape(folder), rest.rstrip("/") or "*"))


def _folders(base: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Yield a folder and all unseen folders below it; links are followed last."""
    waiting, links = deque([base]), deque[str]()
    while waiting or links:
        folder = waiting.popleft() if waiting else links.popleft()
        try:
            found = os.stat(folder)
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if (found.st_dev, found.st_ino) in seen:
            continue
        seen.add((found.st_dev, found.st_ino))
        yield folder
        for entry in entries:
            if entry.is_dir():
                (links if entry.is_symlink() else waiting).append(entry.path)


def _files_below(top: str) -> Iterator[FileInfo]:
    """Yield a file, or the files of a folder and of all unseen folders below it; links are followed last."""
    waiting, links, seen = deque([top]), deque[str](), set[tuple[int, int]]()
    while waiting or links:
        folder = waiting.popleft() if waiting else links.popleft()
        try:
            found = os.stat(folder)
            if (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            entries = os.scandir(folder)
        except NotADirectoryError:
            info = _regular_file(folder)
            if info is not None:
                yield info
            continue
        except FileNotFoundError:
            if folder == top:
                raise
            continue
        with entries:
            for entry in entries:
                if entry.is_dir():
                    (links if entry.is_symlink() else waiting).append(entry.path)
                elif (info := _regular_file(entry.path, entry.stat)) is not None:
                    yield info


def _regular_file(path: str, look: Callable[[], os.stat_result] | None = None) -> FileInfo | None:
    """Return a file with its modification time; `None` if it is gone, or is not a regular file."""
    try:
        found = os.stat(path) if look is None else look()
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_file = stat.S_ISREG(found.st_mode)
    return FileInfo(path, found.st_size, modified=found.st_mtime_ns // 1000) if is_file else None


class LocalFileSystem:
    """The local disk; paths are absolute."""

    def find(self, pattern: str) -> Sequence[FileInfo]:
        """Return all matching files, including hidden ones; folders are walked.

        `**` enters each folder once, regardless of how many links lead to it.
        """
        if os.path.isfile(pattern):
            return [FileInfo(pattern, os.path.getsize(pattern))]
        if os.path.isdir(pattern):
            pattern = os.path.join(glob.escape(pattern), "**", "*")
        found = (path for path in _matching(pattern) if os.path.isfile(path))
        return [FileInfo(path, os.path.getsize(path)) for path in sorted(set(found))]

    def walk(self, pattern: str) -> Iterator[FileInfo]:
        """Yield matching files with their times; a folder is read entry by entry."""
        if os.path.isfile(pattern) or not is_glob(pattern) or os.path.isdir(pattern):
            yield from _files_below(pattern)
            return
        os.stat(literal_folder(pattern))
        for path in _matching(pattern):
            info = _regular_file(path)
            if info is not None:
                yield info

    def info(self, path: str) -> FileInfo | None:
        return _regular_file(path)

    def size(self, path: str) -> int | None:
        try:
            return os.path.getsize(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_input(self, path: str) -> InputFile:
        return open(path, "rb", buffering=0)

    def make_directory(self, directory: str, probe: str) -> None:
        """Durably make the directory with its parents; write and remove the probe."""
        os.makedirs(directory, exist_ok=True)
        PosixDisk(Path(directory)).sync_way_up()
        path = os.path.join(directory, probe)
        with open(path, "wb"):
            pass
        _unlink_if_there(path)

    def names(self, directory: str, prefix: str) -> Sequence[str]:
        try:
            return sorted(name for name in os.listdir(directory) if name.startswith(prefix))
        except FileNotFoundError:
            return []

    def partition_files(self, directory: str, most: int) -> Sequence[str]:
        found: list[str] = []
        folders = deque([""])
        while folders and most > 0:
            folder = folders.popleft()
            try:
                entries = os.scandir(os.path.join(directory, folder))
            except FileNotFoundError:
                continue
            with entries:
                for entry in islice(entries, most):
                    most -= 1
                    is_partition = "=" in entry.name and entry.is_dir(follow_symlinks=False)
                    (folders if is_partition else found).append(os.path.join(folder, entry.name))
        return found

    def create(self, directory: str, name: str) -> OutputFile:
        return LocalOutputFile(os.path.join(directory, name))

    def publish(self, directory: str, name: str, final: str) -> Publication:
        source, target = os.path.join(directory, name), os.path.join(directory, final)
        folder = os.path.dirname(target)
        if folder != os.path.dirname(source):
            os.makedirs(folder, exist_ok=True)
            PosixDisk(Path(folder)).sync_way_up()
        outcome = self._publish(source, target)
        if outcome in (Publication.PUBLISHED, Publication.ALREADY_PUBLISHED):
            PosixFolder(folder).sync()
        return outcome

    def _publish(self, source: str, target: str) -> Publication:
        outcome = Publication.PUBLISHED
        try:
            os.link(source, target)
        except FileExistsError:
            try:
                if not os.path.samefile(source, target):
                    return Publication.OCCUPIED
            except FileNotFoundError:
                # Another publisher removed `source` after our `link` failed.
                return Publication.ALREADY_PUBLISHED
            outcome = Publication.ALREADY_PUBLISHED
        except FileNotFoundError:
            return _without_source(target)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if os.path.exists(target):
                return Publication.OCCUPIED
            try:
                os.rename(source, target)
            except FileNotFoundError:
                return _without_source(target)
        _unlink_if_there(source)
        return outcome

    def delete(self, directory: str, names: Sequence[str]) -> None:
        for name in names:
            _unlink_if_there(os.path.join(directory, name))


def _without_source(target: str) -> Publication:
    return Publication.ALREADY_PUBLISHED if os.path.exists(target) else Publication.MISSING


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


#: URL schemes served by obstore.
OBJECT_STORE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")


def filesystem_for(location: str, storage_options: Mapping[str, str]) -> FileSystem:
    """Return the file system for an absolute location; refuses an unknown scheme."""
    if "://" not in location:
        return LocalFileSystem()
    scheme = location.split("://", 1)[0]
    if scheme not in OBJECT_STORE_SCHEMES:
        known = ", ".join(f"{name}://" for name in ("file", *OBJECT_STORE_SCHEMES))
        msg = f"{location}: no file system is known for {scheme}://; use a local path or one of {known}"
        raise ConfigurationError(msg)
    if has_password(location):
        msg = (
            f"{location} contains a password or token, which snapshots and web pages would show: use "
            "storage_options"
        )
        raise ConfigurationError(msg)
    from penstock.runtime.io.connectors.object_files import (
        object_file_system,  # most jobs need no obstore here
    )

    return object_file_system(location, storage_options)
