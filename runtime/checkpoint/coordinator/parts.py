"""Collaborators that the starts, completions and aborts of checkpoints share.

`ServedAttempt` is the attempt whose checkpoints are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.runtime.checkpoint.coordinator.failures import CheckpointFailureManager
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.history import CheckpointHistory
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed, CheckpointRequests
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.ids import SubtaskId

#: The answer of a JobMaster that was replaced.
TAKEN_OVER: Final = CheckpointFailed(
    Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, "another attempt has taken the job over"
)

_NOT_RUNNING: Final = CheckpointFailed(Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, "the job is not running")


class CoordinatorGateway(Protocol):
    """The coordinator's calls to subtasks of an attempt.

    No call blocks, or calls the coordinator back before it returns.
    """

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None: ...

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None: ...

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None: ...


@dataclass(slots=True)
class ServedAttempt:
    """The attempt whose checkpoints are taken; without one, `refusal` answers requests.

    `next_id` is larger than the id of every checkpoint so far.
    """

    number: int | None = None
    refusal: CheckpointFailed = field(default=_NOT_RUNNING)
    next_id: int = 1

    def begin(self, number: int, highest_id: int) -> None:
        """Serve another attempt, with ids above `highest_id`."""
        self.number = number
        self.next_id = max(self.next_id, highest_id + 1)

    def has_begun(self, checkpoint_id: int) -> bool:
        return checkpoint_id < self.next_id


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """The collaborators shared by the starts, completions and aborts of a job's checkpoints.

    Attributes:
        pending: The running checkpoints by id.
        fail_job: Called with the cause when a failed checkpoint fails the attempt.
    """

    config: Checkpointing
    pending: dict[int, PendingCheckpoint]
    served: ServedAttempt
    requests: CheckpointRequests
    planner: CheckpointPlanner
    gateway: CoordinatorGateway
    files: CheckpointFiles
    history: CheckpointHistory
    failures: CheckpointFailureManager
    coordinators: OperatorCoordinators
    clock: Clock
    semantics: Semantics
    fail_job: Callable[[str], object]
