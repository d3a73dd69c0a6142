"""`CachedBufferStorage`: keeps elements of blocked channels in memory."""

from __future__ import annotations

from collections import deque

from penstock.runtime.network.buffer_storage import BufferStorage, StoredElement, StoredSequence


class CachedBufferStorage(BufferStorage):
    """A buffer storage in memory.

    Args:
        max_bytes: Above this it `is_full`; `None` for no limit.
        page_size: Bytes that every element counts for; `None` counts sizes.

    Example:
        >>> from penstock.runtime.record.elements import Watermark
        >>> storage = CachedBufferStorage(max_bytes=10)
        >>> storage.add(StoredElement(0, Watermark(5), size=9))
        >>> storage.poll() is None, storage.pending_bytes, storage.is_full
        (True, 9, False)
        >>> storage.roll_over()
        >>> storage.poll().element
        Watermark(timestamp=5)
    """

    def _new_sequence(self) -> StoredSequence:
        return _InMemory()


class _InMemory:
    spilled_bytes = 0

    def __init__(self) -> None:
        self._elements: deque[StoredElement] = deque()

    def append(self, stored: StoredElement) -> None:
        self._elements.append(stored)

    def take(self) -> StoredElement | None:
        return self._elements.popleft() if self._elements else None

    def close(self) -> None:
        self._elements.clear()
