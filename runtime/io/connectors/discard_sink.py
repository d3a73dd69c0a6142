"""`DiscardSink`: drops every record; for benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.runtime.misspelt_names import NearestNames
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.permit import CommitPermit


@dataclass(frozen=True)
class DiscardSink(metaclass=NearestNames):
    """A sink that keeps nothing."""

    only_reads: ClassVar[bool] = True

    def writer(self, context: ConnectorContext) -> DiscardWriter:
        """Make the writer of one subtask."""
        return DiscardWriter()


class DiscardWriter:
    """Drops the records of one subtask."""

    def write(self, batch: Batch) -> None:
        """Drop a batch."""

    def prepare_commit(self) -> Sequence[Any]:
        """Nothing to commit."""
        return ()

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        """Nothing to commit."""

    def abort(self, committables: Sequence[Any]) -> None:
        """Nothing to remove."""

    def close(self) -> None:
        """Nothing to release."""
