"""The decision whether failed checkpoints fail the attempt.

`CheckpointFailureManager` (Flink's class) counts failures *in a row*, each checkpoint once. Only failures
that concern the job's health count: the checkpoint expired, a subtask could not take it, or triggering or
writing it failed. Aborts because of a restart or a newer completed checkpoint do not count. Flink 1.11
counts only expired and declined checkpoints. Later versions count all reasons in `COUNTED_REASONS`, and so
does this class by default. A savepoint counts only if a subtask could not take it: then a restart may help.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason

#: Reasons that Flink 1.11 counts.
COUNTED_IN_FLINK_1_11: Final = frozenset({Reason.CHECKPOINT_DECLINED, Reason.CHECKPOINT_EXPIRED})

#: Reasons that a job counts.
COUNTED_REASONS: Final = COUNTED_IN_FLINK_1_11 | {
    Reason.TASK_CHECKPOINT_FAILURE,
    Reason.TRIGGER_CHECKPOINT_FAILURE,
    Reason.FINALIZE_CHECKPOINT_FAILURE,
}

#: Reasons that count for savepoints too, because a subtask could not take the savepoint.
COUNTED_FOR_SAVEPOINTS: Final = frozenset({Reason.CHECKPOINT_DECLINED, Reason.TASK_CHECKPOINT_FAILURE})

#: Reasons that fail a request before any subtask was notified of the checkpoint.
BEFORE_THE_TASKS: Final = frozenset(
    {
        Reason.PERIODIC_SCHEDULER_SHUTDOWN,
        Reason.TOO_MANY_CONCURRENT_CHECKPOINTS,
        Reason.TOO_MANY_CHECKPOINT_REQUESTS,
        Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
        Reason.NOT_ALL_REQUIRED_TASKS_RUNNING,
        Reason.EXCEPTION,
    }
)

#: Number of failed checkpoints whose ids are kept, so that none counts twice.
REMEMBERED_FAILURES: Final = 100


class CheckpointFailureManager:
    """Counts failures and decides when the attempt must fail; `None` tolerates any number in a row.

    Example:
        >>> manager = CheckpointFailureManager(1)
        >>> manager.failed(Reason.CHECKPOINT_EXPIRED, 1), manager.failed(Reason.CHECKPOINT_EXPIRED, 2)
        (False, True)
    """

    def __init__(
        self, tolerable_failures: int | None, counted_reasons: frozenset[Reason] = COUNTED_REASONS
    ) -> None:
        self._tolerable = tolerable_failures
        self._counted_reasons = counted_reasons
        self._counted_ids: deque[int] = deque(maxlen=REMEMBERED_FAILURES)
        self.in_a_row = 0
        self._completed_id = -1

    def failed(self, reason: Reason, checkpoint_id: int, *, is_savepoint: bool = False) -> bool:
        """Count a failure; return whether the attempt must fail, which resets the count.

        `checkpoint_id` is -1 if the checkpoint failed before it got an id.
        """
        if not self._counts(reason, checkpoint_id, is_savepoint=is_savepoint):
            return False
        if checkpoint_id >= 0:
            self._counted_ids.append(checkpoint_id)
        self.in_a_row += 1
        if self._tolerable is None or self.in_a_row <= self._tolerable:
            return False
        self._clear()
        return True

    def sync_savepoint_failed(self, reason: Reason | None) -> bool:
        """Whether the failure of a synchronous savepoint fails the attempt: subtasks may wait for it."""
        return reason not in BEFORE_THE_TASKS

    def succeeded(self, checkpoint_id: int = -1) -> None:
        """Reset the count; failures of checkpoints older than this (-1 for unknown) no longer count."""
        self._completed_id = max(self._completed_id, checkpoint_id)
        self._clear()

    def _counts(self, reason: Reason, checkpoint_id: int, *, is_savepoint: bool) -> bool:
        if reason not in self._counted_reasons or (is_savepoint and reason not in COUNTED_FOR_SAVEPOINTS):
            return False
        is_late = 0 <= checkpoint_id < self._completed_id
        return not is_late and checkpoint_id not in self._counted_ids

    def _clear(self) -> None:
        self.in_a_row = 0
        self._counted_ids.clear()
