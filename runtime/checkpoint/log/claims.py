"""What a writer of the decision log is told, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.errors import StorageError


class OutcomeUnknownError(StorageError):
    """Nobody knows whether the record got into the log; whatever depends on it must be left as it is."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The decision stands in the log.

    Attributes:
        slot: Where.
    """

    slot: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The decision does not stand: a newer attempt owns the job, or the job has ended.

    Attributes:
        newer_attempt: Who made the decision that came first.
    """

    newer_attempt: int


Claim: TypeAlias = Claimed | Fenced


@dataclass(frozen=True, slots=True)
class DecisionLogStatistics:
    """Counters of one writer.

    Attributes:
        attempt: The attempt it writes for; 0 before the first.
        next_slot: The slot it wants next.
        records_since_compaction: How many records a replay has to read.
        claimed: Records that got in.
        conflicts: Puts that found the slot taken.
        unanswered: Puts that failed otherwise.
        compactions: Compactions written.
        compaction_error: Why the last compaction failed; empty when it did not. A later one makes it good.
    """

    attempt: int
    next_slot: int
    records_since_compaction: int
    claimed: int
    conflicts: int
    unanswered: int
    compactions: int
    compaction_error: str
