"""When failed checkpoints fail the job (Flink's `CheckpointFailureManager`).

Only failures *in a row* count, each checkpoint once, and only for reasons that say something about the job's
health: an expired checkpoint, one that a subtask could not take, one that could not be written. A checkpoint
that was given up because the job restarts, or because a newer one overtook it, says nothing; nor does one
that fails late, after a newer one has completed. Flink 1.11 counts the first two reasons only; its later
versions added the rest, which is the default here.

A savepoint is the user's wish: it counts when a subtask could not take it, for then a restart may help, and
not when the job itself could not (it expired, it could not be written): that is told to whoever asked.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason

#: What Flink 1.11 counts.
COUNTED_IN_FLINK_1_11: Final = frozenset({Reason.CHECKPOINT_DECLINED, Reason.CHECKPOINT_EXPIRED})

#: What a job counts.
COUNTED_REASONS: Final = COUNTED_IN_FLINK_1_11 | {
    Reason.TASK_CHECKPOINT_FAILURE,
    Reason.TRIGGER_CHECKPOINT_FAILURE,
    Reason.FINALIZE_CHECKPOINT_FAILURE,
}

#: Reasons that count for savepoints, too: a subtask has failed at it.
COUNTED_FOR_SAVEPOINTS: Final = frozenset({Reason.CHECKPOINT_DECLINED, Reason.TASK_CHECKPOINT_FAILURE})

#: Reasons for which a request fails before any subtask has heard of the checkpoint.
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

#: Of so many failures in a row it is known which checkpoints they were, so none counts twice. A checkpoint
#: fails within a few checkpoints of its start, and some jobs tolerate any number of failures.
REMEMBERED_FAILURES: Final = 100


class CheckpointFailureManager:
    """Counts failures and says when the job must fail.

    Args:
        tolerable_failures: How many failures in a row are tolerated; `None` for any number.
        counted_reasons: Which reasons count.

    Attributes:
        in_a_row: Counted failures since the last success.

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
        """A checkpoint failed; returns whether the job must fail, and then counts anew.

        Args:
            checkpoint_id: Which; -1 when it got no id.
            is_savepoint: Whether it was a savepoint.
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
        """A synchronous savepoint failed; the job must fail if its subtasks may already wait for it.

        Args:
            reason: Why; `None` for an error that is no checkpoint failure.
        """
        return reason not in BEFORE_THE_TASKS

    def succeeded(self, checkpoint_id: int = -1) -> None:
        """A checkpoint completed: count anew; failures of older ones say nothing any more.

        Args:
            checkpoint_id: Which; -1 when that is not known.
        """
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
