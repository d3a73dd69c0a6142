"""`SpillingBufferStorage`: keeps elements of blocked channels in memory, and beyond that in files.

Each sequence has a head in memory, then a file, then a tail in memory, which is mostly empty. Elements go to
the head while there is room in memory, and to the file from then on. So what is in the file stands behind
what is in the head. Once an element could not be written, it and all that follow it go to the tail.

The bound on memory is for all sequences together. An element counts for its bytes and for a fixed number of
bytes more, so that millions of small ones are bounded, too.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.runtime.errors import StorageError, StreamCorruptError
from penstock.runtime.network.buffer_storage import BufferStorage, StoredElement, StoredSequence
from penstock.runtime.ports import SpillFile, SpillFileOpener
from penstock.runtime.record.element_codec import decode_element, encode_element

#: In front of each element: its channel, the bytes that it counts for, the bytes that follow.
_HEADER: Final = struct.Struct("<IQQ")

#: Bytes that an element in memory takes beside its payload, about.
ELEMENT_OVERHEAD: Final = 256


class SpillingBufferStorage(BufferStorage):
    """A buffer storage in memory and on a local disk; see the module's text.

    Args:
        open_file: Makes files; one for each alignment that does not fit into memory.
        memory_bytes: Bytes that are kept in memory; 0 keeps nothing there.
        max_bytes: Above this it `is_full`; `None` for no limit but the disk's.
        page_size: Bytes that every element counts for; `None` counts sizes.
    """

    def __init__(
        self,
        open_file: SpillFileOpener,
        memory_bytes: int = 0,
        max_bytes: int | None = None,
        page_size: int | None = None,
    ) -> None:
        super().__init__(max_bytes, page_size)
        self._memory = _Memory(open_file, memory_bytes)

    def take_failure(self) -> str | None:
        """Why an element had to stay in memory since the last call; `None` when none had to."""
        failure, self._memory.failure = self._memory.failure, None
        return failure

    def _new_sequence(self) -> StoredSequence:
        return _Spilling(self._memory)


@dataclass(slots=True)
class _Memory:
    """What the sequences of one storage share."""

    open_file: SpillFileOpener
    left: int
    failure: str | None = None

    def takes(self, stored: StoredElement) -> bool:
        """Take an element if there is room for it."""
        cost = stored.size + ELEMENT_OVERHEAD
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def gives(self, stored: StoredElement) -> None:
        """An element that was taken is gone."""
        self.left += stored.size + ELEMENT_OVERHEAD


class _Spilling:
    def __init__(self, memory: _Memory) -> None:
        self.spilled_bytes = 0
        self._memory = memory
        self._head: deque[StoredElement] = deque()
        self._file: SpillFile | None = None
        self._tail: deque[StoredElement] = deque()

    def append(self, stored: StoredElement) -> None:
        if self._file is None and not self._tail and self._memory.takes(stored):
            self._head.append(stored)
        elif self._tail or not self._is_spilled(stored):
            self._tail.append(stored)

    def take(self) -> StoredElement | None:
        if self._head:
            stored = self._head.popleft()
            self._memory.gives(stored)
            return stored
        if self._file is not None:
            if (spilled := _read(self._file)) is not None:
                return spilled
            self._file.close()
            self._file = None
        return self._tail.popleft() if self._tail else None

    def close(self) -> None:
        while self._head:
            self._memory.gives(self._head.popleft())
        self._tail.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_spilled(self, stored: StoredElement) -> bool:
        data = encode_element(stored.element)
        try:
            if self._file is None:
                self._file = self._memory.open_file()
            self._file.append(_HEADER.pack(stored.channel, stored.size, len(data)) + data)
        except StorageError as error:
            self._memory.failure = str(error)
            return False
        self.spilled_bytes += stored.size
        return True


def _read(file: SpillFile) -> StoredElement | None:
    header = file.read(_HEADER.size)
    if not header:
        return None
    try:
        channel, size, length = _HEADER.unpack(header)
        return StoredElement(channel, decode_element(file.read(length)), size)
    except (struct.error, StreamCorruptError) as error:
        msg = f"a spilled element of a blocked channel came back damaged: {error}. Check the disk of the node"
        raise StorageError(msg) from error
