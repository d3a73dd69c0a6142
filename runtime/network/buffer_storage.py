"""Storage for elements of blocked channels whose senders continue: in memory, and beyond a limit in files.

While barriers are aligned, elements of blocked channels are added to a *sequence*. When the alignment ends,
the sequence is rolled over: it is handed out element by element, before any new element. These elements may
begin and end another alignment. Then the newer sequence comes first, and the interrupted one continues
afterwards. Each channel stays in order, because the newer elements preceded the rest of the interrupted
sequence.

An element that can't be spilled stays in memory, so none is ever lost. `take_failure` then returns the
reason, and the owner ends the alignment.

Bytes are counted so that an alignment can be given up before memory or disk is full. The count includes all
elements not yet rolled over, and interrupted sequences in full, but not the sequence being handed out.
Another thread may read the counters, so each counter first copies the parts that the task may change.

A sequence has a head in memory, then a file, then a tail in memory, which is usually empty. Elements go to
the head while there is room in memory, and to the file from then on. Once an element could not be written, it
and all later ones go to the tail. The bound on memory is for all sequences together. An element counts as its
bytes plus a fixed overhead, so that millions of small ones are bounded, too.

The model is Flink's `BufferStorage` up to 1.10.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.runtime.errors import StorageError, StreamCorruptError
from penstock.runtime.ports import SpillFile, SpillFileOpener
from penstock.runtime.record.element_codec import decode_element, encode_element
from penstock.runtime.record.elements import StreamElement


@dataclass(frozen=True, slots=True)
class StoredElement:
    """A stored element; it counts as `size` bytes."""

    channel: int
    element: StreamElement
    size: int


@dataclass(frozen=True, slots=True)
class BufferStorageStatistics:
    """Counters of a buffer storage.

    Attributes:
        elements: Number of elements added; one that is stored again counts again.
        bytes: Bytes of these elements.
        spilled_bytes: Bytes of the elements that were written to a disk.
        pending_bytes: Bytes added but not yet rolled over.
        rolled_bytes: Bytes of interrupted sequences.
        largest_alignment: Maximum bytes that were pending at once.
    """

    elements: int
    bytes: int
    spilled_bytes: int
    pending_bytes: int
    rolled_bytes: int
    largest_alignment: int


#: Header of each element: its channel, its counted bytes, and the number of bytes that follow.
_HEADER: Final = struct.Struct("<IQQ")

#: Approximate bytes that an element in memory takes besides its payload.
ELEMENT_OVERHEAD: Final = 256


class BufferStorage:
    """Keeps elements of blocked channels and hands them out again; see the module's docstring.

    Args:
        open_file: Makes a file for each alignment that does not fit into memory.
        memory_bytes: Maximum bytes that are kept in memory; 0 keeps nothing there.
        max_bytes: The storage `is_full` above this number of bytes; `None` for no limit.
    """

    def __init__(
        self, open_file: SpillFileOpener, memory_bytes: int = 0, max_bytes: int | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self._memory = _Memory(open_file, memory_bytes)
        self._pending: _Sequence | None = None
        self._reading: _Sequence | None = None
        self._interrupted: deque[_Sequence] = deque()
        self._elements = self._bytes = self._spilled = self._largest = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of the running alignment: added but not yet rolled over."""
        pending = self._pending
        return 0 if pending is None else pending.size

    @property
    def pending_spilled_bytes(self) -> int:
        pending = self._pending
        return 0 if pending is None else pending.spilled_bytes

    @property
    def rolled_bytes(self) -> int:
        """Bytes of interrupted sequences, including elements that were handed out already."""
        return sum(sequence.size for sequence in tuple(self._interrupted))

    @property
    def is_empty(self) -> bool:
        return self._reading is None

    @property
    def is_full(self) -> bool:
        return self.max_bytes is not None and self.pending_bytes + self.rolled_bytes > self.max_bytes

    def take_failure(self) -> str | None:
        """Return and clear the reason why elements could not be spilled; `None` if none failed."""
        failure, self._memory.failure = self._memory.failure, None
        return failure

    def add(self, stored: StoredElement) -> None:
        if self._pending is None:
            self._pending = _Sequence(self._memory)
        sequence = self._pending
        spilled = sequence.spilled_bytes
        sequence.append(stored)
        self._spilled += sequence.spilled_bytes - spilled
        self._elements += 1
        self._bytes += stored.size
        self._largest = max(self._largest, sequence.size)

    def roll_over(self) -> None:
        """Begin to hand out the added elements, before the current sequence; do nothing without any."""
        if self._pending is None:
            return
        if self._reading is not None:
            self._interrupted.appendleft(self._reading)
        self._reading, self._pending = self._pending, None

    def poll(self) -> StoredElement | None:
        """Return the next element; `None` at the end of a sequence, even if an interrupted one follows."""
        if self._reading is None:
            return None
        stored = self._reading.take()
        if stored is None:
            self._reading.close()
            self._reading = self._interrupted.popleft() if self._interrupted else None
        return stored

    def close(self) -> None:
        for sequence in (self._pending, self._reading, *self._interrupted):
            if sequence is not None:
                sequence.close()
        self._pending = self._reading = None
        self._interrupted.clear()

    def statistics(self) -> BufferStorageStatistics:
        return BufferStorageStatistics(
            self._elements,
            self._bytes,
            self._spilled,
            self.pending_bytes,
            self.rolled_bytes,
            self._largest,
        )


@dataclass(slots=True)
class _Memory:
    open_file: SpillFileOpener
    left: int
    failure: str | None = None

    def takes(self, stored: StoredElement) -> bool:
        cost = stored.size + ELEMENT_OVERHEAD
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def gives(self, stored: StoredElement) -> None:
        self.left += stored.size + ELEMENT_OVERHEAD


class _Sequence:
    """Elements in order: first all are appended, then all are taken."""

    def __init__(self, memory: _Memory) -> None:
        self.size = self.spilled_bytes = 0
        self._memory = memory
        self._head: deque[StoredElement] = deque()
        self._file: SpillFile | None = None
        self._tail: deque[StoredElement] = deque()

    def append(self, stored: StoredElement) -> None:
        self.size += stored.size
        if self._file is None and not self._tail and self._memory.takes(stored):
            self._head.append(stored)
        elif self._tail or not self._is_spilled(stored):
            self._tail.append(stored)

    def take(self) -> StoredElement | None:
        """Return the next element; `None` when all were taken."""
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
        msg = f"a spilled element of a blocked channel can't be read: {error}. Check the disk of the node"
        raise StorageError(msg) from error
