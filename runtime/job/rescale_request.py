"""A request to change the parallelism of a running job, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class RescaleStarted:
    """The state is saved, all subtasks have stopped, and the new deployment begins.

    Attributes:
        attempt: The last attempt at the old parallelism.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The job keeps its parallelism.

    Attributes:
        why: Explains it to people.
    """

    why: str


RescaleAnswer: TypeAlias = RescaleStarted | RescaleRefused
OnRescaled: TypeAlias = Callable[[RescaleAnswer], None]


@dataclass(frozen=True, slots=True)
class RescaleRequest:
    """The new parallelism.

    Attributes:
        parallelism: By vertex id; other vertices keep theirs.
        on_answer: Called once with the answer.
    """

    parallelism: Mapping[str, int]
    on_answer: OnRescaled
