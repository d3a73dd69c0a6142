"""`FrameStore`: holds frames in memory while there is room, then in unlinked files, until they are released.

Writing a frame to a file costs more than all other work on the frame. A job that keeps up with Spark releases
its frames at the next checkpoint. So frames are written to files only if more than `memory` bytes arrive
between two checkpoints. A frame in a file stays there until it is released.

A file is unlinked as soon as it is created, so it disappears with the process. A full file is closed when
all its frames are released, which frees its space.

The files have a limit, because they share a disk with Ray and all other processes of the node. Waiting for
room would not help. The frames of a micro-batch can't be read before it is closed, and frames that were read
stay until a checkpoint. So a frame that does not fit is refused, and the transfer fails.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import IO, Final

from penstock.bridge.receive_buffer_messages import DEFAULT_MAX_DISK_BYTES, FrameData
from penstock.runtime.errors import PenstockError

#: Bytes after which the next file is begun.
FILE_SIZE: Final = 64 * 1024 * 1024
#: File number that stands for memory; files begin at 1.
_MEMORY: Final = 0


@dataclass(frozen=True, slots=True)
class FrameLocation:
    """Position of a frame: file 0 is the memory, where the offset is the frame's number."""

    file: int
    offset: int
    size: int


@dataclass(slots=True)
class _Segment:
    file: IO[bytes]
    size: int = 0
    frames: int = 0


class NoRoomError(PenstockError):
    """The files would exceed their limit."""


class FrameStore:
    """Stores frames, reads them and releases them; see the module's docstring.

    Args:
        memory: Bytes that are held in memory; further frames go to files.
        folder: Folder of the files; the system's temporary folder by default.
        file_size: Bytes after which the next file is begun.
    """

    def __init__(
        self,
        memory: int = 0,
        folder: str | None = None,
        file_size: int = FILE_SIZE,
        max_disk_bytes: int = DEFAULT_MAX_DISK_BYTES,
    ) -> None:
        self._memory = memory
        self._folder = folder
        self._file_size = file_size
        self._max_disk_bytes = max_disk_bytes
        self._kept: dict[int, bytes] = {}
        self._next = 0
        #: Bytes that are held in memory.
        self.memory_bytes = 0
        self._segments: dict[int, _Segment] = {}
        self._newest = 0

    @property
    def open_files(self) -> int:
        return len(self._segments)

    @property
    def disk_bytes(self) -> int:
        return sum(segment.size for segment in self._segments.values())

    def append(self, data: FrameData) -> FrameLocation:
        """Store a copy of a frame; after a `NoRoomError` nothing is stored."""
        if self.memory_bytes + len(data) <= self._memory:
            return self._keep(data)
        self._require_room(len(data))
        segment = self._segments.get(self._newest)
        if segment is None or segment.size >= self._file_size:
            self._drop_if_empty(self._newest)
            self._newest += 1
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 # open until released
            segment = _Segment(file)
            self._segments[self._newest] = segment
        location = FrameLocation(self._newest, segment.size, len(data))
        # Write at the offset: after a failed write the file's own position is wrong.
        view, done = memoryview(data), 0
        while done < len(data):
            done += os.pwrite(segment.file.fileno(), view[done:], location.offset + done)
        segment.size += len(data)
        segment.frames += 1
        return location

    def _require_room(self, size: int) -> None:
        held = self.disk_bytes
        if held + size <= self._max_disk_bytes:
            return
        folder = self._folder or tempfile.gettempdir()
        msg = (
            f"rows from Spark that no checkpoint covers fill {held:,} bytes in files in {folder}, and "
            f"max_disk_bytes={self._max_disk_bytes:,} allows no more. Take checkpoints more often, let Spark "
            "make smaller micro-batches, use more readers (parallelism), or allow more if the disk has room"
        )
        raise NoRoomError(msg)

    def _keep(self, data: FrameData) -> FrameLocation:
        location = FrameLocation(_MEMORY, self._next, len(data))
        # Ray's buffer is in shared memory, which other processes need.
        self._kept[self._next] = bytes(data)
        self._next += 1
        self.memory_bytes += len(data)
        return location

    def read(self, location: FrameLocation) -> bytes:
        if location.file == _MEMORY:
            return self._kept[location.offset]
        return os.pread(self._segments[location.file].file.fileno(), location.size, location.offset)

    def release(self, location: FrameLocation) -> None:
        if location.file == _MEMORY:
            self.memory_bytes -= len(self._kept.pop(location.offset))
            return
        segment = self._segments[location.file]
        segment.frames -= 1
        if location.file != self._newest:
            self._drop_if_empty(location.file)

    def close(self) -> None:
        self._kept.clear()
        self.memory_bytes = 0
        for segment in self._segments.values():
            segment.file.close()
        self._segments.clear()

    def _drop_if_empty(self, number: int) -> None:
        segment = self._segments.get(number)
        if segment is not None and segment.frames == 0:
            segment.file.close()
            del self._segments[number]
