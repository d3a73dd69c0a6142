"""`TemporarySpillFile`: bytes of one subtask in an unnamed file.

The file is in the temporary folder of the node (`TMPDIR`). Other processes can't open it without a name, and
it disappears with the process, however that ends.

A write goes to the operating system at once and at a known position. So a failed write loses nothing: earlier
writes remain, and the space of the failed write is released.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Final

from penstock.runtime.errors import StorageError

#: Bytes of one read.
_READ_AHEAD: Final = 1024 * 1024

_ROOM: Final = (
    "Let TMPDIR of the nodes name a folder with more room, or set a larger alignment_memory or a smaller "
    "max_alignment_bytes"
)
_DISK: Final = "Check the disk of the node, or let TMPDIR of the nodes name a folder on another one"


def open_spill_file(folder: Path | None = None) -> TemporarySpillFile:
    """Make a new unnamed file.

    Args:
        folder: Folder of the file; `None` for the temporary folder of the node.

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
        raise StorageError(_message("made", place, error, _ROOM)) from error
    return TemporarySpillFile(file, place)


class TemporarySpillFile:
    """A `SpillFile` on a local disk; owns the unbuffered file. See the module docstring."""

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
            raise StorageError(_message("written", self._place, error, _ROOM)) from error
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
            raise StorageError(_message("read", self._place, error, _DISK)) from error
        self._ahead, self._ahead_from = b"".join(parts), self._position

    def _give_room_back(self) -> None:
        """Truncate a failed write; the next write overwrites it, so a failure here changes nothing."""
        try:
            os.ftruncate(self._file.fileno(), self._end)
        except OSError:
            return


def _message(what: str, place: Path, error: OSError, advice: str) -> str:
    return f"elements of blocked channels could not be {what} in {place}: {error}. {advice}"
