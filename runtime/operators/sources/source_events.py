"""What a source's readers and its coordinator tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A reader has nothing to read.

    Attributes:
        number: Counts the requests of one reader from 1, so that one that comes twice is known.
    """

    number: int


@dataclass(frozen=True, slots=True)
class SplitsAssigned:
    """These are the reader's from now on."""

    splits: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NoMoreSplits:
    """The reader finishes when it has read what it has."""
