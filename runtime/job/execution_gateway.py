"""The port through which a job's scheduler moves subtasks and tells the world how it ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.operator_coordinator import EventAnswer
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId


class ExecutionGateway(Protocol):
    """What the scheduler asks of the world. No call blocks, and none calls the scheduler back at once."""

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        """Place every subtask and hand it its state.

        Answered by `on_deployed(attempt)` or `on_deployment_failed(attempt, cause)`; it has a deadline.
        """
        ...

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The next `deploy` is for this graph: the job was rescaled. Nothing of it runs."""
        ...

    def start(self, attempt: int) -> None:
        """Let every subtask restore and begin; answered by `on_started(attempt)` when all run."""
        ...

    def stop_all(self, attempt: int) -> None:
        """Stop every subtask, whatever it takes, also one whose deployment is under way.

        Answered by `on_all_stopped(attempt)`, always.
        """
        ...

    def deploy_region(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        """As `deploy`, for these subtasks; the others go on under the attempts that they have.

        Args:
            attempt: The new attempt.
            subtasks: The region.
            restore: What it starts from; `None` for nothing.
        """
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
        """Tell these to start a checkpoint: sources, and subtasks whose senders have all finished.

        Args:
            attempt: Of the subtasks.
            subtasks: Who is told.
            barrier: The barrier that they send.
        """
        ...

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Tell these subtasks that a checkpoint is complete: they may commit.

        Args:
            attempt: Of the subtasks.
            subtasks: Who is told.
            checkpoint_id: The checkpoint.
        """
        ...

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        """Tell these subtasks that a checkpoint was given up.

        Args:
            attempt: Of the subtasks.
            subtasks: Who is told.
            checkpoint_id: The checkpoint.
        """
        ...

    def send_operator_event(
        self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any, answer: EventAnswer
    ) -> None:
        """Hand an event of an operator's coordinator to a subtask, and say what became of it.

        Events and `trigger_checkpoint` of one subtask arrive in the order of the calls, and each once.

        Args:
            attempt: Of the subtask.
            subtask: The receiver.
            operator_id: The operator.
            event: What its coordinator says.
            answer: Told what became of it.
        """
        ...

    def job_ended(self, state: JobState, cause: str) -> None:
        """The job is over for good; called once, with its root cause when it failed."""
        ...

    def fenced(self) -> None:
        """Another JobMaster owns the job: leave without touching anything; called once, nothing follows."""
        ...
