"""Names of subtasks, exchanges and channels.

Names of exchanges and channels do not depend on parallelism or chaining.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.runtime.snapshot.sealed_file import items, text, whole


@dataclass(frozen=True, slots=True)
class EdgeId:
    """An exchange, named by the operators that it connects.

    Attributes:
        tag: Name of a side output; `None` for the main output.
        copy: Number among equal exchanges, for a stream that is united with itself.

    Example:
        >>> edge = EdgeId("split", None, "count")
        >>> str(edge), EdgeId.decode(edge.encode()) == edge
        ('split -> count', True)
    """

    source_operator: str
    tag: str | None
    target_operator: str
    input_index: int = 0
    copy: int = 0

    def __str__(self) -> str:
        return f"{self.source_operator} -> {self.target_operator}"

    def encode(self) -> list[Any]:
        return [self.source_operator, self.tag, self.target_operator, self.input_index, self.copy]

    @classmethod
    def decode(cls, item: list[Any]) -> EdgeId:
        source, tag, target, index, copy = items(item, 5)
        return cls(text(source), None if tag is None else text(tag), text(target), whole(index), whole(copy))


@dataclass(frozen=True, slots=True)
class ChannelId:
    edge: EdgeId
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True, order=True)
class SubtaskId:
    """One subtask of one job vertex.

    Example:
        >>> str(SubtaskId("count", 1))
        'count[1]'
    """

    vertex: str
    index: int

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"
