"""The external system behind the sinks: transactions are staged there, then committed or removed.

It stands for a database or a folder that outlives every process of the job. What is staged is durable and
invisible; what is committed is visible for ever. It is strict: committing a transaction that was never
staged, or was removed, violates the two-phase protocol and ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.testing.simulation.jobs.records import Record

#: Sink, subtask, job, attempt, and the number of the transaction in that attempt.
TransactionKey: TypeAlias = tuple[str, int, str, int, int]


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
        self._covered_by: dict[TransactionKey, int] = {}
        self._fenced: dict[str, int] = {}
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

    def commit(
        self, key: TransactionKey, covered_by: int | None = None, writer: tuple[str, int] = ("", 0)
    ) -> None:
        """Make a transaction visible; one that is visible stays as it is.

        Args:
            covered_by: The checkpoint that allows it.
            writer: Job and attempt that commit; an attempt that was fenced off changes nothing.

        Raises:
            ProtocolViolation: There is no such transaction (any more).
        """
        job, attempt = writer
        if attempt < self._fenced.get(job, 0):
            return
        if key in self._committed:
            self._repeated += 1
        elif key in self._staged:
            self._committed[key] = self._staged.pop(key)
            self._covered_by[key] = -1 if covered_by is None else covered_by
        else:
            msg = f"transaction {key} is committed, but it was never staged or has been removed"
            raise ProtocolViolation(msg)

    def take_back_to(self, checkpoint_id: int) -> int:
        """Go back to what was visible when this checkpoint was taken; returns how much is hidden again.

        Whoever starts a job from an older checkpoint does that with the world outside. Output that became
        visible with this checkpoint or a later one is staged again. If the checkpoint covers it, a job that
        starts from there commits it again.
        """
        later = [key for key, covered_by in self._covered_by.items() if covered_by >= checkpoint_id]
        for key in later:
            self._staged[key] = self._committed.pop(key)
            del self._covered_by[key]
        return len(later)

    def fence(self, job: str, attempt: int) -> None:
        """Let no attempt of a job commit that is older than this one."""
        self._fenced[job] = attempt

    def remove_older_than(self, sink: str, job: str, attempt: int) -> None:
        """Remove what earlier attempts of a job have staged and not committed."""
        leftovers = [key for key in self._staged if (key[0], key[2]) == (sink, job) and key[3] < attempt]
        for key in leftovers:
            del self._staged[key]
        self._removed += len(leftovers)

    def transactions(self, sink: str) -> dict[TransactionKey, Sequence[Record]]:
        """Committed values by transaction, in the order in which they were written."""
        own = ((key, rows) for key, rows in self._committed.items() if key[0] == sink)
        return dict(sorted(own, key=lambda entry: entry[0]))

    def rows(self, sink: str) -> list[Record]:
        """All committed records of a sink."""
        return [row for rows in self.transactions(sink).values() for row in rows]

    def all_rows(self, sink: str) -> list[Record]:
        """All records of a sink that are here, staged or committed."""
        kept = (*self._staged.items(), *self._committed.items())
        return [row for key, rows in kept if key[0] == sink for row in rows]

    def statistics(self) -> ExternalStatistics:
        """Counters."""
        return ExternalStatistics(len(self._staged), len(self._committed), self._repeated, self._removed)
