"""What became of a job's rescales."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class RescaleRecord:
    """One change of a job's parallelism.

    Attributes:
        requested_at: Wall-clock seconds.
        attempt: The attempt that ran then.
        before: Parallelism by vertex, of the vertices that were to change.
        after: The parallelism that they were to have.
        ended_at: When its subtasks began to be deployed anew, or the change was given up; wall-clock seconds,
            `None` until then.
        checkpoint_id: The checkpoint that holds the state for the new parallelism; `None` without one.
        failure: Why the job stayed as it was; empty when it did not, or while it is not known.
    """

    requested_at: float
    attempt: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    ended_at: float | None = None
    checkpoint_id: int | None = None
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RescaleRecord:
        """The record that `to_dict` gave.

        Example:
            >>> record = RescaleRecord(1.0, 2, {"count": 1}, {"count": 4}, 3.0, 7)
            >>> RescaleRecord.from_dict(record.to_dict()) == record
            True
        """
        return cls(**data)


class RescaleHistory:
    """The last rescales of a job; at most the newest one is under way.

    Args:
        capacity: How many are remembered.
    """

    def __init__(self, capacity: int = 32) -> None:
        self._records: deque[RescaleRecord] = deque(maxlen=capacity)

    def begin(self, record: RescaleRecord) -> None:
        """A rescale was requested."""
        self._records.append(record)

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """The state for the new parallelism is saved."""
        self._records[-1] = replace(self._records[-1], checkpoint_id=checkpoint_id)

    def end(self, at: float, failure: str = "") -> None:
        """The job is deployed anew, or stays as it was."""
        self._records[-1] = replace(self._records[-1], ended_at=at, failure=failure)

    def records(self) -> tuple[RescaleRecord, ...]:
        """All that are remembered, oldest first."""
        return tuple(self._records)
