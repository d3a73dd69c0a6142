"""The last checkpoints, and behind them the last failed ones and the last savepoints.

A job that takes a checkpoint each second has let go of a failure within minutes, just when somebody asks why
it happened. Failed checkpoints and savepoints are rare. So some of them stay when the others have gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

#: Checkpoints that are remembered: about 300 bytes each.
CAPACITY: Final = 1_000
#: Failed checkpoints, and savepoints, that stay beyond these.
_KEPT: Final = 50


class CheckpointRecords:
    """Records of checkpoints in the order of their start; their number is bounded.

    Args:
        capacity: Number of checkpoints that are remembered, of whatever kind.
        kept: Number of failed ones, and of savepoints, that are remembered beyond.

    Example:
        >>> records = CheckpointRecords(capacity=2)
        >>> for number, status in enumerate(["failed", "completed", "completed", "completed"]):
        ...     status = CheckpointStatus(status)
        ...     records.append(CheckpointRecord(number, 1, SnapshotKind.CHECKPOINT, status, 0.0))
        >>> [record.checkpoint_id for record in records]
        [0, 2, 3]
    """

    def __init__(self, capacity: int = CAPACITY, kept: int = _KEPT) -> None:
        self._capacity = capacity
        self._kept = kept
        self._newest: deque[CheckpointRecord] = deque()
        self._older: list[CheckpointRecord] = []

    def __iter__(self) -> Iterator[CheckpointRecord]:
        yield from self._older
        yield from self._newest

    def __len__(self) -> int:
        return len(self._older) + len(self._newest)

    def append(self, record: CheckpointRecord) -> None:
        """Add the newest one."""
        self._newest.append(record)
        while len(self._newest) > self._capacity:
            self._let_go(self._newest.popleft())

    def replace_all(self, records: Iterable[CheckpointRecord]) -> None:
        """Forget all, and remember these, oldest first."""
        self._newest.clear()
        self._older.clear()
        for record in records:
            self.append(record)

    def update(self, checkpoint_id: int, **changes: Any) -> CheckpointRecord | None:
        """Change the newest record with this id; `None` when it is not remembered any more."""
        for position in range(len(self._newest) - 1, -1, -1):
            if self._newest[position].checkpoint_id == checkpoint_id:
                record = self._newest[position] = replace(self._newest[position], **changes)
                return record
        return None

    def _let_go(self, record: CheckpointRecord) -> None:
        if not is_rare(record):
            return
        self._older.append(record)
        for is_kind in (is_failed, is_savepoint):
            alike = [place for place, each in enumerate(self._older) if is_kind(each)]
            if len(alike) > self._kept:
                del self._older[alike[0]]


def is_failed(record: CheckpointRecord) -> bool:
    """Whether a checkpoint or savepoint failed."""
    return record.status is CheckpointStatus.FAILED


def is_savepoint(record: CheckpointRecord) -> bool:
    """Whether it is a savepoint that is complete."""
    return record.kind.is_savepoint and record.status is CheckpointStatus.COMPLETED


def is_rare(record: CheckpointRecord) -> bool:
    """Whether it stays longer than others."""
    return is_failed(record) or is_savepoint(record)


def newest_and_rare(
    records: Sequence[CheckpointRecord], newest: int, rare: int
) -> tuple[CheckpointRecord, ...]:
    """A few of them: the newest, and before them the last failed ones and the last savepoints.

    Args:
        records: Oldest first.
        newest: Number of the newest.
        rare: Number of failed ones, and of savepoints, before these.
    """
    chosen: list[CheckpointRecord] = []
    left = {is_failed: rare, is_savepoint: rare}
    completed, plain = CheckpointStatus.COMPLETED, SnapshotKind.CHECKPOINT
    # A report is made every second: the thousand that are not rare must cost next to nothing.
    others = [each for each in records[:-newest] if each.status is not completed or each.kind is not plain]
    for record in reversed(others):
        for is_kind in left:
            if left[is_kind] and is_kind(record):
                left[is_kind] -= 1
                chosen.append(record)
        if not any(left.values()):
            break
    return (*reversed(chosen), *records[-newest:])
