"""What a user asks for who changes a job's parallelism while it runs, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class RescaleStarted:
    """The job's state is saved, its subtasks have stopped and are deployed anew.

    Attributes:
        attempt: The attempt that is the last one at the old parallelism.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The job goes on as it was, or restarts for another reason.

    Attributes:
        why: For people.
    """

    why: str


RescaleAnswer: TypeAlias = RescaleStarted | RescaleRefused
OnRescaled: TypeAlias = Callable[[RescaleAnswer], None]


@dataclass(frozen=True, slots=True)
class RescaleRequest:
    """The new parallelism.

    Attributes:
        parallelism: By vertex id; vertices that are not named keep theirs.
        on_answer: Told once what comes of it.
    """

    parallelism: Mapping[str, int]
    on_answer: OnRescaled
