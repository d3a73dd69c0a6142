"""`SpillDisk`: the temporary folders of the simulated nodes, which now and then have no room."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SpillFile


class SpillDisk:
    """Makes spill files in memory; a `SpillFileOpener`.

    Args:
        has_room: Asked before each write.

    Example:
        >>> file = SpillDisk(lambda: True)()
        >>> file.append(b"stored")
        >>> file.read(3), file.read(9)
        (b'sto', b'red')
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room

    def __call__(self) -> SpillFile:
        """A new, empty file."""
        return _File(self._has_room)


class _File:
    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
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
        self._data.clear()
