"""The records of a simulated job, each with its origin and route, and the external system behind the sinks.

A record is `(origin, route)`. The origin is the source's operator, the split and the position in it. The
route has one step for each operator that it passed. A step has the operator, the subtask (the *lane*), and
the number of the copy if the operator emits several. After a keyed operator it also has the key, the record's
number among those of the key, and the key's digest after it. So the output of a job shows what every operator
has processed, in which order, and what its state must be.

The external system behind the sinks: transactions are staged there, then committed or removed.

It stands for a database or a folder that outlives every process of the job. What is staged is durable and
invisible; what is committed is visible for ever. It is strict: committing a transaction that was never
staged, or was removed, violates the two-phase protocol and ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import xxhash

#: The source's operator, the split, the position in it.
Origin: TypeAlias = tuple[int, int, int]

#: Operator, subtask, copy; behind a keyed operator also key, number and digest.
Step: TypeAlias = tuple[Any, ...]

Route: TypeAlias = tuple[Step, ...]

Record: TypeAlias = tuple[Origin, Route]

#: Names a record whatever lanes it took: operator and copy of each step, and the lane after a broadcast.
Identity: TypeAlias = tuple[Origin, tuple[tuple[int, int, int], ...]]

Key: TypeAlias = int | str


class Copies(Enum):
    """Number of records that an operator makes of one."""

    ONE = "one"
    NONE_TO_TWO = "none to two"
    ONE_OR_TWO = "one or two"

    def of(self, origin: Origin) -> int:
        """Number of records that it makes of this one.

        Example:
            >>> [Copies.NONE_TO_TWO.of((0, 0, i)) for i in range(4)]
            [0, 1, 2, 0]
        """
        _, split, index = origin
        if self is Copies.ONE:
            return 1
        return (split + index) % 3 if self is Copies.NONE_TO_TWO else 1 + (split + index) % 2


def key_of(origin: Origin, operator: int, keys: int, *, text: bool) -> Key:
    """The key of a record for one keyed operator.

    Example:
        >>> key_of((0, 1, 2), operator=3, keys=4, text=True)
        'key-0'
    """
    source, split, index = origin
    number = (source + 3 * split + index + operator) % keys
    return f"key-{number}" if text else number


def identity_of(origin: Origin, steps: Route, broadcast: frozenset[tuple[int, int]]) -> Identity:
    """The name of a record after these steps; `broadcast` are the exchanges that give it to all subtasks."""
    way = zip((None, *(step[0] for step in steps)), steps, strict=False)
    return origin, tuple((s[0], s[2], s[1] if (before, s[0]) in broadcast else -1) for before, s in way)


def lanes_of(steps: Route) -> tuple[tuple[int, int], ...]:
    """The channels that a record took: operator and subtask of each step."""
    return tuple((step[0], step[1]) for step in steps)


def digest_after(before: int, origin: Origin, steps: Route) -> int:
    """The digest of a key's state after one more record with this way behind it."""
    way = [(step[0], step[2]) for step in steps]
    return xxhash.xxh3_64_intdigest(f"{before}|{origin}|{way}".encode()) >> 1


#: Sink, subtask, job, attempt, and the number of the transaction in that attempt.
TransactionKey: TypeAlias = tuple[str, int, str, int, int]


class ProtocolViolation(AssertionError):
    """A sink got a call that it must never get."""


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

        A user who starts a job from an older checkpoint does that with the world outside. Output that became
        visible with this checkpoint or a later one is staged again. If the checkpoint covers it, a job that
        starts from there commits it again. The user also shuts the first job out (`fence`).
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
