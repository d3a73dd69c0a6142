"""Counters of the checkpoints of one subtask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubtaskCheckpointStatistics:
    """Counters of a subtask's checkpoints.

    Attributes:
        taken: Checkpoints whose synchronous half was done.
        acknowledged: Checkpoints that were acknowledged.
        declined: Checkpoints that were declined.
        running: Asynchronous halves that run now.
        remembered_aborts: Abort notices of checkpoints that have not come yet.
    """

    taken: int
    acknowledged: int
    declined: int
    running: int
    remembered_aborts: int
