"""`Step`: one step of a pattern, as the matcher needs it; `pattern.py` has the methods that users call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Contiguity(Enum):
    """Records that may lie between two records of a match; the value is the `Pattern` method that sets it."""

    #: No records.
    STRICT = "next"
    #: Records that do not match the next step.
    RELAXED = "followed_by"
    #: Any records.
    ANY = "followed_by_any"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pattern: a record, or a group of steps that repeat together.

    Attributes:
        name: Name of the step; for a group, its steps as text.
        contiguity: Records that may lie between this step and the previous step.
        is_negative: Whether the step describes records that must be absent.
        at_most: Maximum number of records; `None` for no limit.
        inner: Records that may lie between two records of this step.
        until: Ends the step: it takes neither the record that matches this condition nor a later one.
        gap: Microseconds within which a record must follow the previous record; `None` for no limit.
        members: Steps of a group; empty for a step that is not a group.
    """

    name: str
    where: Callable[..., object]
    contiguity: Contiguity
    is_negative: bool = False
    at_least: int = 1
    at_most: int | None = 1
    inner: Contiguity = Contiguity.RELAXED
    is_optional: bool = False
    is_greedy: bool = False
    until: Callable[..., object] | None = None
    gap: int | None = None
    members: tuple[Step, ...] = ()

    @property
    def is_quantified(self) -> bool:
        return (self.at_least, self.at_most) != (1, 1)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The parts of the step on which saved partial matches depend."""
        return (
            self.name,
            self.contiguity.value,
            self.is_negative,
            self.at_least,
            self.at_most,
            self.inner.value,
            self.is_optional,
            self.is_greedy,
            tuple(member.shape for member in self.members),
        )

    def __str__(self) -> str:
        if self.is_negative:
            return f"not_{self.contiguity.value} {self.name}"
        times = "" if not self.is_quantified else f"{{{self.at_least},{self.at_most or ''}}}"
        return self.name + times + "?" * self.is_optional


def leaves(steps: Sequence[Step]) -> Iterator[Step]:
    """Iterate over the steps that are not groups, including the steps within groups."""
    for step in steps:
        if step.members:
            yield from leaves(step.members)
        else:
            yield step
