"""`DiscardSink`: counts records and drops them; for benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.misspelt_names import NearestNames
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit


@dataclass(frozen=True)
class DiscardSink(metaclass=NearestNames):
    """A sink that keeps nothing."""

    def writer(self, context: ConnectorContext) -> DiscardWriter:
        """Make the writer of one subtask."""
        return DiscardWriter()


@dataclass(frozen=True, slots=True)
class DiscardStatistics:
    """Counters of one writer.

    Attributes:
        records: Records dropped.
        batches: Batches they came in.
    """

    records: int
    batches: int


class DiscardWriter:
    """Counts the records of one subtask."""

    def __init__(self) -> None:
        self._records = self._batches = 0

    def write(self, batch: Batch) -> None:
        """Count a batch."""
        self._records += len(batch)
        self._batches += 1

    def prepare_commit(self) -> Sequence[Any]:
        """Nothing to commit."""
        return ()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Nothing to commit."""

    def abort(self, committables: Sequence[Any]) -> None:
        """Nothing to remove."""

    def statistics(self) -> DiscardStatistics:
        """The writer's counters."""
        return DiscardStatistics(self._records, self._batches)

    def close(self) -> None:
        """Nothing to release."""
