"""`SpillingBufferStorage`: keeps elements of blocked channels on disk.

Each sequence is one temporary file without a name: it is gone with the process, however that ends. It is
written once from the beginning to the end and then read once.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import IO, Final

from penstock.runtime.errors import StorageError, StreamCorruptError
from penstock.runtime.network.buffer_storage import BufferStorage, StoredElement, StoredSequence
from penstock.runtime.record.element_codec import decode_element, encode_element

#: In front of each element: its channel, the bytes that it counts for, the bytes that follow.
_HEADER: Final = struct.Struct("<IQQ")


class SpillingBufferStorage(BufferStorage):
    """A buffer storage on local disk.

    Args:
        folder: Where its files are; must exist. A disk with room for `max_bytes`.
        max_bytes: Above this it `is_full`; `None` for no limit but the disk's.
        page_size: Bytes that every element counts for; `None` counts sizes.
    """

    def __init__(self, folder: Path, max_bytes: int | None = None, page_size: int | None = None) -> None:
        super().__init__(max_bytes, page_size)
        self._folder = folder

    def _new_sequence(self) -> StoredSequence:
        return _InFile(self._folder)


class _InFile:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_reading = False
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        except OSError as error:
            raise StorageError(self._message("made", error)) from error

    def append(self, stored: StoredElement) -> None:
        data = encode_element(stored.element)
        try:
            self._file.write(_HEADER.pack(stored.channel, stored.size, len(data)))
            self._file.write(data)
        except OSError as error:
            raise StorageError(self._message("written", error)) from error

    def take(self) -> StoredElement | None:
        try:
            if not self._is_reading:
                self._file.seek(0)
                self._is_reading = True
            header = self._file.read(_HEADER.size)
            if not header:
                return None
            channel, size, length = _HEADER.unpack(header)
            return StoredElement(channel, decode_element(self._file.read(length)), size)
        except (OSError, struct.error, StreamCorruptError) as error:
            raise StorageError(self._message("read", error)) from error

    def close(self) -> None:
        self._file.close()

    def _message(self, what: str, error: Exception) -> str:
        return (
            f"the elements of blocked channels could not be {what} in {self._folder}: {error}. "
            "Give a folder of a disk with more room, or a smaller max_alignment_bytes"
        )
