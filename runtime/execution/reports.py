"""What subtasks report, handed to the scheduler."""

from __future__ import annotations

from penstock.runtime.execution.messages import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    ReachedEndOfData,
    SubtaskReport,
)
from penstock.runtime.job.scheduler import JobScheduler


def hand_to_scheduler(scheduler: JobScheduler, attempt: int, report: SubtaskReport) -> None:
    """Tell the scheduler what a subtask of this attempt reports; it ignores what is of an old attempt."""
    match report:
        case Acknowledged(subtask, checkpoint_id, snapshot, metrics):
            scheduler.acknowledge(attempt, subtask, checkpoint_id, snapshot, metrics)
        case Declined(subtask, checkpoint_id, reason, detail):
            scheduler.decline(attempt, subtask, checkpoint_id, reason, detail)
        case EventForCoordinator(subtask, operator_id, event):
            scheduler.on_operator_event(attempt, subtask, operator_id, event)
        case ReachedEndOfData(subtask):
            scheduler.on_end_of_data(attempt, subtask)
