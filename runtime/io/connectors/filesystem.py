"""Where files are: the port that file sources and sinks use, and which file system a URL names.

Paths of the local disk are plain absolute paths; objects in a store are full URLs (`s3://bucket/key`). A
file system of the user's own can be handed to a source or sink as long as it has these methods.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from penstock.runtime.errors import ConfigurationError

#: URL schemes that are served through obstore.
OBJECT_STORE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as it was found.

    Attributes:
        path: Absolute path or full URL.
        size: Bytes.
    """

    path: str
    size: int


class Publication(Enum):
    """What came of publishing a file."""

    PUBLISHED = "published"
    ALREADY_PUBLISHED = "already published"
    MISSING = "missing"
    OCCUPIED = "occupied"


class InputFile(Protocol):
    """An open file with a position."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes from the position; empty at the end."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a byte."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class OutputFile(Protocol):
    """A file that is being written."""

    def write(self, data: Any, /) -> Any:
        """Append bytes."""
        ...

    def finish(self) -> None:
        """End the file: everything written is durable when this returns."""
        ...

    def discard(self) -> None:
        """Give the unfinished file up and remove what there is of it."""
        ...


class FileSystem(Protocol):
    """Finds and reads files, writes them under a temporary name and publishes them."""

    def find(self, pattern: str) -> Sequence[FileInfo]:
        """All files that match a path, a folder, or a glob pattern, sorted by path."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a file, `None` when it is not there."""
        ...

    def open_input(self, path: str) -> InputFile:
        """Open a file for reading."""
        ...

    def make_directory(self, directory: str, probe: str) -> None:
        """Make a directory if it is missing and prove, with a file named `probe`, that it can be written.

        Raises:
            OSError: It can't be made or written.
        """
        ...

    def names(self, directory: str, prefix: str) -> Sequence[str]:
        """Names of the files in a directory (not below) that begin with `prefix`."""
        ...

    def create(self, directory: str, name: str) -> OutputFile:
        """Begin a new file; an existing one is never touched."""
        ...

    def publish(self, directory: str, name: str, final: str) -> Publication:
        """Give a finished file its final name without ever overwriting; may be repeated.

        Args:
            directory: Where the file is.
            name: Its name so far.
            final: Its name from now on.
        """
        ...

    def delete(self, directory: str, names: Sequence[str]) -> None:
        """Delete files; one that is not there is no error."""
        ...


def absolute(location: str | os.PathLike[str]) -> str:
    """Make a location independent of the working directory; `file://` URLs become paths.

    Raises:
        ConfigurationError: The location is empty.

    Example:
        >>> absolute("/data/../in/*.txt"), absolute("file:///in/a%20b"), absolute("s3://bucket/key")
        ('/in/*.txt', '/in/a b', 's3://bucket/key')
    """
    text = os.fspath(location)
    if not text:
        msg = "a file location is empty: give a path, a folder, a glob pattern or a URL"
        raise ConfigurationError(msg)
    if "://" not in text:
        return os.path.abspath(os.path.expanduser(text))
    if urlsplit(text).scheme == "file":
        return os.path.abspath(unquote(text.removeprefix("file://").removeprefix("localhost")))
    return text


def filesystem_for(location: str, storage_options: Mapping[str, str]) -> FileSystem:
    """The file system that serves an absolute location.

    Raises:
        ConfigurationError: The URL's scheme is not known.
    """
    from penstock.runtime.io.connectors.local_files import LocalFileSystem
    from penstock.runtime.io.connectors.object_files import object_file_system

    if "://" not in location:
        return LocalFileSystem()
    scheme = location.split("://", 1)[0]
    if scheme not in OBJECT_STORE_SCHEMES:
        known = ", ".join(f"{each}://" for each in ("file", *OBJECT_STORE_SCHEMES))
        msg = f"{location}: no file system is known for {scheme}://; use a local path or one of {known}"
        raise ConfigurationError(msg)
    return object_file_system(location, storage_options)
