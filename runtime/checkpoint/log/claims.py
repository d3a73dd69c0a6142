"""Outcomes of writing to the decision log, and what its writer counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.errors import StorageError


class OutcomeUnknownError(StorageError):
    """It is not known whether the record is in the log; what depends on it must stay as it is."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The decision is in the log.

    Attributes:
        slot: The slot of its record.
    """

    slot: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """The decision is not in the log: a newer attempt owns the job, or the job has ended.

    Attributes:
        newer_attempt: The attempt whose decision came first.
    """

    newer_attempt: int


Claim: TypeAlias = Claimed | Fenced


@dataclass(frozen=True, slots=True)
class DecisionLogStatistics:
    """Counters of one writer.

    Attributes:
        attempt: The attempt it writes for; 0 before the first.
        next_slot: The slot it wants next.
        records_since_compaction: Number of records that a replay has to read.
        claimed: Records that got in.
        conflicts: Puts that found the slot taken.
        unanswered: Puts that failed otherwise.
        compactions: Compactions written.
        compaction_error: Why the last compaction failed; empty when it did not. A later one makes up for it.
    """

    attempt: int
    next_slot: int
    records_since_compaction: int
    claimed: int
    conflicts: int
    unanswered: int
    compactions: int
    compaction_error: str
