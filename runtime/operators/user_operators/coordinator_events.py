"""What a user's operator and its coordinator send each other, and its place relative to checkpoints.

Both directions cross the line that a checkpoint draws, at different moments. So each event says on which side
of which line it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventOfSubtask:
    """An event of a subtask for its operator's coordinator.

    Attributes:
        number: Counts the events of this subtask and attempt from 1. Reports may overtake each other.
        data: The event, encoded.
    """

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class EventOfCoordinator:
    """An event of an operator's coordinator for one of its subtasks.

    Attributes:
        after: The newest checkpoint that the coordinator had taken its part of; -1 for none. The event
            belongs behind it.
        data: The event, encoded.
    """

    after: int
    data: bytes
