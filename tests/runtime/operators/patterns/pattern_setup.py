"""Patterns over records such as `a1`: a step takes the records that begin with its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.patterns import AfterMatchSkipStrategy, Pattern
from penstock.runtime.operators.patterns.key_matches import KeyMatches, Match
from penstock.runtime.operators.patterns.matcher import Matcher


def letter(name: str) -> Callable[[str], bool]:
    return lambda record: record.startswith(name)


def begin(name: str, skip: AfterMatchSkipStrategy | None = None) -> Pattern[str]:
    return Pattern.begin(name, where=letter(name), skip=skip)


def then(pattern: Pattern[str], call: str, name: str) -> Pattern[str]:
    """Add a step by the name of the method."""
    added: Pattern[str] = getattr(pattern, call)(name, where=letter(name))
    return added


def text_of(match: Match) -> str:
    """The records of a match in the order of its steps: `a1 b1`."""
    return " ".join(record for records in match.values() for record in records)


class OneKey:
    """Gives records to a matcher; each comes a second after the one before it.

    Attributes:
        matches: Texts of the matches so far.
        timed_out: Texts of the partial matches that have timed out.
    """

    def __init__(self, pattern: Pattern[Any], text: Callable[[Match], Any] = text_of) -> None:
        self.text = text
        self.matcher = Matcher(pattern.checked())
        self.of_key = KeyMatches()
        self.matches: list[Any] = []
        self.timed_out: list[str] = []
        self.at = -1_000_000

    def push(self, records: str) -> OneKey:
        for record in records.split():
            self.advance_to(self.at + 1_000_000)
            outcome = self.matcher.advance(self.of_key, self.at, record)
            self.matches += map(self.text, outcome.matches)
        return self

    def advance_to(self, at: int) -> OneKey:
        """Let time pass, and stop at each deadline on the way."""
        while (deadline := self.matcher.deadline(self.of_key)) is not None and deadline <= at:
            self._expire(deadline)
        self.at = at
        self._expire(at)
        return self

    def _expire(self, at: int) -> None:
        outcome = self.matcher.expire(self.of_key, at)
        self.matches += map(self.text, outcome.matches)
        self.timed_out += map(self.text, outcome.timed_out)


def found(pattern: Pattern[Any], records: str) -> list[str]:
    """The matches in records, as sorted texts."""
    return sorted(OneKey(pattern).push(records).matches)
