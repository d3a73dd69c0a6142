"""`FileSystem`: the port through which file sources and sinks reach files.

A local file is named by its absolute path, an object in a store by its full URL (`s3://bucket/key`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from penstock.runtime.config.checks import Location, location


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file found by a listing.

    Attributes:
        path: Absolute path or full URL.
        size: Bytes.
        unreadable: Reason why the file of a folder or pattern is skipped; empty for readable files.
        modified: Time of the last modification, in microseconds since the epoch; `None` if it is not known.
    """

    path: str
    size: int
    unreadable: str = ""
    modified: int | None = None


@runtime_checkable
class WalksFiles(Protocol):
    """Optional for a file system: lists many files in little memory, for sources that watch folders."""

    def walk(self, pattern: str) -> Iterator[FileInfo]:
        """Yield all files that match as in `find`, with their modification times, in any order.

        A file may be yielded twice. An empty file of an object store may stand for a folder.

        Raises:
            OSError: The folder is missing, or can't be listed.
            ConnectorError: An object store can't be reached.
        """
        ...

    def info(self, path: str) -> FileInfo | None:
        """Return a file with its time, perhaps in whole seconds; `None` when it doesn't exist."""
        ...


class Publication(Enum):
    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already published"
    MISSING = "missing"
    OCCUPIED = "occupied"


class InputFile(Protocol):
    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes from the position; empty at the end."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def close(self) -> None: ...


class OutputFile(Protocol):
    def write(self, data: Any, /) -> Any: ...

    def finish(self) -> None:
        """End the file and make everything written durable."""
        ...

    def discard(self) -> None: ...


class FileSystem(Protocol):
    """Finds and reads files, writes them under a temporary name and publishes them."""

    def find(self, pattern: str) -> Sequence[FileInfo]:
        """Return all files that match a path, a folder, or a glob pattern, sorted by path."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; `None` when it doesn't exist."""
        ...

    def open_input(self, path: str) -> InputFile:
        """Open a file for reading."""
        ...

    def make_directory(self, directory: str, probe: str) -> None:
        """Make a directory if it is missing, and check with a file named `probe` that it is writable."""
        ...

    def names(self, directory: str, prefix: str) -> Sequence[str]:
        """Return the names of the files directly in a directory that begin with `prefix`."""
        ...

    def partition_files(self, directory: str, most: int) -> Sequence[str]:
        """Return files of a directory and of its partition folders, such as `day=7/part-0.csv`, in any order.

        Lists at most `most` files and folders, so that the call is quick in a large directory. A missing
        directory has no files.
        """
        ...

    def create(self, directory: str, name: str) -> OutputFile:
        """Create a new file, whose name must not be in use."""
        ...

    def publish(self, directory: str, name: str, final: str) -> Publication:
        """Rename a finished file from `name` to `final` without overwriting; idempotent.

        `final` may begin with folders, which are made if they are missing.
        """
        ...

    def delete(self, directory: str, names: Sequence[str]) -> None:
        """Delete files; a missing file is not an error."""
        ...


@runtime_checkable
class FetchesFiles(Protocol):
    """Optional for a file system in which each request takes long: fetches small files concurrently."""

    def fetch(self, paths: Sequence[str]) -> None:
        """Fetch whole files; the next `open_input` of each of them makes no request.

        A file that can't be fetched is left out, so that `open_input` says why.
        """
        ...


def absolute(name: str, value: Location) -> str:
    """Make a location independent of the working directory; `file://` URLs become paths.

    Args:
        name: Name of the argument, for error messages.

    Raises:
        ConfigurationError: The value is neither a path nor a URL.

    Example:
        >>> absolute("in", "/data/../in/*.txt"), absolute("in", "file:///in/a%20b"), absolute("in", "s3://a/b")
        ('/in/*.txt', '/in/a b', 's3://a/b')
    """
    text = location(name, value)
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    if urlsplit(text).scheme == "file":
        return os.path.abspath(unquote(text.removeprefix("file://").removeprefix("localhost")))
    return text
