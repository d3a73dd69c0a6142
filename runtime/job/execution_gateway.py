"""`ExecutionGateway`: the port through which a scheduler deploys, starts and stops subtasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.coordinators.operator_coordinator import EventAnswer
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId


class ExecutionGateway(Protocol):
    """The outgoing calls of the scheduler. No call blocks or calls the scheduler back at once."""

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """Place every subtask and hand it its state.

        Answered by `on_deployed(attempt)` or `on_deployment_failed(attempt, cause)`, within a deadline.
        """
        ...

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job was rescaled: the next `deploy` is for this graph. No subtask runs now."""
        ...

    def start(self, attempt: int) -> None:
        """Let every subtask restore and begin; answered by `on_started(attempt)` when all run."""
        ...

    def stop_all(self, attempt: int) -> None:
        """Stop every subtask, by force if need be, also one that is being deployed.

        Answered by `on_all_stopped(attempt)`, always.
        """
        ...

    def deploy_region(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        """As `deploy`, for the subtasks of a region; the others go on in their attempts."""
        ...

    def start_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """As `start`, for these subtasks."""
        ...

    def stop_region(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """As `stop_all`, for these subtasks; answered by `on_region_stopped(attempt)`."""
        ...

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        """Tell subtasks to start a checkpoint: sources, and those whose senders have all finished."""
        ...

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Notify these subtasks that a checkpoint is complete: they may commit."""
        ...

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Notify these subtasks that a checkpoint was aborted."""
        ...

    def send_operator_event(
        self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any, answer: EventAnswer
    ) -> None:
        """Send an event of an operator coordinator to a subtask; `answer` is called with whether it arrived.

        Events and triggers of one subtask arrive once each, in the order of the calls.
        """
        ...

    def job_ended(self, state: JobState, cause: str) -> None:
        """The job is over for good; called once. `cause` is the root cause of a failure, else empty."""
        ...

    def fenced(self) -> None:
        """Another JobMaster owns the job: leave without touching anything. Called once, as the last call."""
        ...
