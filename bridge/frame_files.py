"""Files without a name that hold frames until they are released.

A file is unlinked as soon as it is made, so whatever ends the process leaves nothing behind. Frames are
appended; a file goes when all of its frames are released, so what is held is never much more on disk.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import IO, Final

from penstock.bridge.depot_messages import FrameData

#: Bytes after which the next file is begun.
FILE_SIZE: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame lies.

    Attributes:
        file: Number of the file.
        offset: First byte.
        size: Bytes.
    """

    file: int
    offset: int
    size: int


@dataclass(slots=True)
class _Segment:
    file: IO[bytes]
    size: int = 0
    frames: int = 0


class FrameFiles:
    """Appends frames, reads them and lets them go.

    Args:
        folder: Where the files are made; by default where temporary files belong.
        file_size: Bytes after which the next file is begun.

    Example:
        >>> files = FrameFiles()
        >>> place = files.append(b"frame")
        >>> files.read(place)
        b'frame'
        >>> files.release(place)
        >>> files.close()
    """

    def __init__(self, folder: str | None = None, file_size: int = FILE_SIZE) -> None:
        self._folder = folder
        self._file_size = file_size
        self._segments: dict[int, _Segment] = {}
        self._newest = 0

    @property
    def open_files(self) -> int:
        """How many files there are."""
        return len(self._segments)

    def append(self, data: FrameData) -> Place:
        """Store a frame."""
        segment = self._segments.get(self._newest)
        if segment is None or segment.size >= self._file_size:
            self._drop_if_empty(self._newest)
            self._newest += 1
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 # open until released
            segment = _Segment(file)
            self._segments[self._newest] = segment
        place = Place(self._newest, segment.size, len(data))
        view = memoryview(data)
        while view:
            view = view[segment.file.write(view) :]
        segment.size += len(data)
        segment.frames += 1
        return place

    def read(self, place: Place) -> bytes:
        """The frame at a place."""
        return os.pread(self._segments[place.file].file.fileno(), place.size, place.offset)

    def release(self, place: Place) -> None:
        """Forget a frame."""
        segment = self._segments[place.file]
        segment.frames -= 1
        if place.file != self._newest:
            self._drop_if_empty(place.file)

    def close(self) -> None:
        """Forget everything."""
        for segment in self._segments.values():
            segment.file.close()
        self._segments.clear()

    def _drop_if_empty(self, number: int) -> None:
        segment = self._segments.get(number)
        if segment is not None and segment.frames == 0:
            segment.file.close()
            del self._segments[number]
