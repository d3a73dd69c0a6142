"""Queues of the records of an async operator, with watermarks and stream statuses in between.

`OrderedQueue` releases results in the order of the records. `UnorderedQueue` releases a result as soon as
the call has answered, but never across a watermark or status. It groups the records between watermarks and
statuses, and only the first group releases results. In both queues, a watermark leaves when all records
before it have left.

A record stays in the queue until its result is taken. So a snapshot must hold exactly the records in the
queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from penstock.runtime.record.elements import Batch, RowBatch, StreamStatus, Watermark

UNANSWERED: Final = object()


@dataclass(slots=True, eq=False)
class AwaitedRecord:
    """A record that waits for its result, or a batch if the operator takes columns.

    Attributes:
        sequence: Number among all records of the subtask.
        key: Idempotency key.
        value: A batch of one row, or an Arrow batch, as it arrived; calls get copies of rows.
        saved: The encoded batch, for snapshots; empty if the job takes no checkpoints.
        of_key: The key whose calls run one after another; `None` if calls don't wait for each other.
    """

    sequence: int
    key: str
    value: Batch
    saved: bytes
    of_key: Any = None
    result: Any = UNANSWERED
    group: _Group | None = field(default=None, repr=False)

    @property
    def rows(self) -> Sequence[Any]:
        """The row of a row batch; empty for an Arrow batch."""
        return self.value.rows if isinstance(self.value, RowBatch) else ()


@dataclass(frozen=True, slots=True)
class Passing:
    """A watermark or status that follows all records whose `sequence` is below `after`."""

    after: int
    element: Watermark | StreamStatus


Leaving: TypeAlias = AwaitedRecord | Passing


class AsyncQueue(Protocol):
    def add(self, element: Leaving) -> None: ...

    def answered(self, entry: AwaitedRecord, result: Any) -> None: ...

    @property
    def is_ready(self) -> bool:
        """Whether `take` would return an element."""
        ...

    def take(self) -> Iterator[Leaving]:
        """Remove and return all elements that may leave now, in order."""
        ...

    def __len__(self) -> int:
        """Number of records."""
        ...

    def __iter__(self) -> Iterator[Leaving]:
        """All elements; a watermark or status comes after all records that were added before it."""
        ...

    @property
    def is_empty(self) -> bool: ...


class OrderedQueue:
    def __init__(self) -> None:
        self._elements: deque[Leaving] = deque()
        self._records = 0

    def add(self, element: Leaving) -> None:
        if isinstance(element, Passing):
            _put_behind(self._elements, element)
        else:
            self._elements.append(element)
            self._records += 1

    def answered(self, entry: AwaitedRecord, result: Any) -> None:
        entry.result = result

    @property
    def is_ready(self) -> bool:
        return bool(self._elements) and _may_leave(self._elements[0])

    @property
    def is_empty(self) -> bool:
        return not self._elements

    def take(self) -> Iterator[Leaving]:
        elements = self._elements
        while elements and _may_leave(elements[0]):
            element = elements.popleft()
            self._records -= isinstance(element, AwaitedRecord)
            yield element

    def __len__(self) -> int:
        return self._records

    def __iter__(self) -> Iterator[Leaving]:
        return iter(self._elements)


def _may_leave(element: Leaving) -> bool:
    return isinstance(element, Passing) or element.result is not UNANSWERED


def _put_behind(elements: deque[Any], passing: Passing) -> None:
    """Add a watermark or status; a watermark replaces one directly before it, so they do not pile up."""
    last = elements[-1] if elements else None
    if (
        isinstance(last, Passing)
        and isinstance(last.element, Watermark)
        and isinstance(passing.element, Watermark)
    ):
        elements.pop()
    elements.append(passing)


@dataclass(slots=True, eq=False)
class _Group:
    """Records between two watermarks or statuses."""

    records: dict[int, AwaitedRecord] = field(default_factory=dict)
    answered: deque[AwaitedRecord] = field(default_factory=deque)


class UnorderedQueue:
    def __init__(self) -> None:
        self._elements: deque[_Group | Passing] = deque()
        self._records = 0

    def add(self, element: Leaving) -> None:
        if isinstance(element, Passing):
            _put_behind(self._elements, element)
            return
        if not self._elements or isinstance(self._elements[-1], Passing):
            self._elements.append(_Group())
        group = self._elements[-1]
        assert isinstance(group, _Group), "the last element is a group of records"
        element.group = group
        group.records[element.sequence] = element
        self._records += 1

    def answered(self, entry: AwaitedRecord, result: Any) -> None:
        entry.result = result
        assert entry.group is not None, "only records of the queue are answered"
        entry.group.answered.append(entry)

    @property
    def is_ready(self) -> bool:
        if not self._elements:
            return False
        first = self._elements[0]
        return isinstance(first, Passing) or bool(first.answered)

    @property
    def is_empty(self) -> bool:
        return not self._elements

    def take(self) -> Iterator[Leaving]:
        while self._elements:
            first = self._elements[0]
            if isinstance(first, Passing):
                self._elements.popleft()
                yield first
                continue
            while first.answered:
                entry = first.answered.popleft()
                del first.records[entry.sequence]
                self._records -= 1
                yield entry
            if first.records:
                return
            self._elements.popleft()

    def __len__(self) -> int:
        return self._records

    def __iter__(self) -> Iterator[Leaving]:
        for element in self._elements:
            if isinstance(element, Passing):
                yield element
            else:
                yield from element.records.values()


class CallsByKey:
    """Lets one call of a key run at a time; other records of the key wait, in their order."""

    def __init__(self) -> None:
        #: Number of records in running calls, by key.
        self._called: dict[Any, int] = {}
        self._blocked: dict[Any, deque[AwaitedRecord]] = {}

    def may_call(self, entry: AwaitedRecord) -> bool:
        """Return whether the record's key has no running call; otherwise keep the record for `end`."""
        if entry.of_key in self._called:
            self._blocked.setdefault(entry.of_key, deque()).append(entry)
            return False
        return True

    def begin(self, entries: Sequence[AwaitedRecord]) -> None:
        for entry in entries:
            self._called[entry.of_key] = self._called.get(entry.of_key, 0) + 1

    def end(self, entries: Sequence[AwaitedRecord]) -> list[AwaitedRecord]:
        """End the calls of some records; return the kept records of keys that now have no running call."""
        free: list[AwaitedRecord] = []
        for entry in entries:
            key = entry.of_key
            self._called[key] -= 1
            if not self._called[key]:
                del self._called[key]
                free += self._blocked.pop(key, ())
        return free
