"""The name of a subtask: its job vertex and its index."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SubtaskId:
    """One subtask of one job vertex.

    Attributes:
        vertex: Id of the job vertex.
        index: Which of its subtasks, from 0.

    Example:
        >>> str(SubtaskId("count", 1))
        'count[1]'
    """

    vertex: str
    index: int

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"
