"""The second job of a run: what it starts from, and what is different in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class StartFrom(Enum):
    """What the second job starts from."""

    NEWEST = "the newest snapshot"
    OLDER = "the one before the newest"


@dataclass(frozen=True, slots=True)
class SecondJob:
    """How a second job is to be started when the first one was stopped or cancelled.

    Attributes:
        parallelism: Of vertices that are to have another one, by their first operator.
        is_moved: Whether a savepoint in a folder of its own is moved first.
    """

    start: StartFrom
    parallelism: Mapping[str, int] = field(default_factory=dict)
    is_moved: bool = False
