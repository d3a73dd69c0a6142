"""`SpillDisk`: the temporary folders of the simulated nodes, which now and then have no room."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SpillFile


class SpillDisk:
    """Makes spill files in memory; a `SpillFileOpener`.

    Args:
        has_room: Asked before each write.

    Attributes:
        open_files: How many files were made and not closed.

    Example:
        >>> disk = SpillDisk(lambda: True)
        >>> file = disk()
        >>> file.append(b"stored")
        >>> file.read(3), file.read(9)
        (b'sto', b'red')
        >>> disk.open_files, file.close(), disk.open_files
        (1, None, 0)
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self.open_files = 0

    def __call__(self) -> SpillFile:
        """A new, empty file."""
        return self.new_file()

    def new_file(self) -> _File:
        """A new, empty file, which knows whether it is open."""
        self.open_files += 1
        return _File(self._has_room, self._closed)

    def _closed(self) -> None:
        self.open_files -= 1


class SpillFilesOfProcess:
    """The spill files of one process, which are gone with it; a `SpillFileOpener`.

    Args:
        disk: Where they are.
    """

    def __init__(self, disk: SpillDisk) -> None:
        self._disk = disk
        self._files: list[_File] = []

    @property
    def open_files(self) -> int:
        """How many of them were not closed."""
        return sum(file.is_open for file in self._files)

    def __call__(self) -> SpillFile:
        """A new, empty file."""
        file = self._disk.new_file()
        self._files.append(file)
        return file

    def die(self) -> None:
        """The process is gone: its files have no names, so the operating system takes them back."""
        for file in self._files:
            file.close()


class _File:
    def __init__(self, has_room: Callable[[], bool], on_close: Callable[[], None]) -> None:
        self._has_room = has_room
        self._on_close = on_close
        self.is_open = True
        self._data = bytearray()
        self._position = 0

    def append(self, data: bytes) -> None:
        """Write, unless there is no room.

        Raises:
            StorageError: There is none.
        """
        if not self._has_room():
            msg = "no room on the simulated disk"
            raise StorageError(msg)
        self._data += data

    def read(self, size: int) -> bytes:
        """The next bytes."""
        read = bytes(self._data[self._position : self._position + size])
        self._position += len(read)
        return read

    def close(self) -> None:
        """Give the room back."""
        if self.is_open:
            self.is_open = False
            self._data.clear()
            self._on_close()
