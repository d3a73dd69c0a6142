"""The world behind the sinks: transactions are staged there, then committed, or removed.

It stands for a database or a folder that outlives every process of the job. What is staged is durable and
invisible; what is committed is visible for ever. It is strict: committing what nobody has staged, or what was
removed, is a violation of the two-phase protocol and ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.testing.simulation.records import Record

#: Sink, subtask, attempt, and the number of the transaction in that attempt.
TransactionKey: TypeAlias = tuple[str, int, int, int]


class ProtocolViolation(AssertionError):
    """A sink was told to do what it must never be told."""


@dataclass(frozen=True, slots=True)
class ExternalStatistics:
    """Counters of the external system.

    Attributes:
        staged: Transactions that wait for their commit.
        committed: Transactions that were committed.
        repeated: Commits of what was committed before.
        removed: Staged transactions that were removed.
    """

    staged: int
    committed: int
    repeated: int
    removed: int


class ExternalSystem:
    """Keeps transactions; see the module's text.

    Example:
        >>> system = ExternalSystem()
        >>> system.stage(("out", 0, 1, 0), [((0, 0, 0), ())])
        >>> system.commit(("out", 0, 1, 0))
        >>> system.rows("out")
        [((0, 0, 0), ())]
    """

    def __init__(self) -> None:
        self._staged: dict[TransactionKey, Sequence[Record]] = {}
        self._committed: dict[TransactionKey, Sequence[Record]] = {}
        self._repeated = self._removed = 0

    def stage(self, key: TransactionKey, rows: Sequence[Record]) -> None:
        """Keep a transaction, invisible.

        Raises:
            ProtocolViolation: There is one of this name.
        """
        if key in self._staged or key in self._committed:
            msg = f"transaction {key} was staged twice"
            raise ProtocolViolation(msg)
        self._staged[key] = rows

    def commit(self, key: TransactionKey) -> None:
        """Make a transaction visible; one that is visible stays as it is.

        Raises:
            ProtocolViolation: There is no such transaction (any more).
        """
        if key in self._committed:
            self._repeated += 1
        elif key in self._staged:
            self._committed[key] = self._staged.pop(key)
        else:
            msg = f"transaction {key} is committed, but it was never staged or has been removed"
            raise ProtocolViolation(msg)

    def remove_older_than(self, sink: str, attempt: int) -> None:
        """Remove what earlier attempts have staged and not committed."""
        leftovers = [key for key in self._staged if key[0] == sink and key[2] < attempt]
        for key in leftovers:
            del self._staged[key]
        self._removed += len(leftovers)

    def transactions(self, sink: str) -> dict[TransactionKey, Sequence[Record]]:
        """What was committed, by transaction, in the order in which it was written."""
        own = ((key, rows) for key, rows in self._committed.items() if key[0] == sink)
        return dict(sorted(own, key=lambda entry: entry[0]))

    def rows(self, sink: str) -> list[Record]:
        """All committed records of a sink."""
        return [row for rows in self.transactions(sink).values() for row in rows]

    def statistics(self) -> ExternalStatistics:
        """Counters."""
        return ExternalStatistics(len(self._staged), len(self._committed), self._repeated, self._removed)
