"""What people ask of the job while it runs; such a request is planned as a fault is."""

from __future__ import annotations

from typing import Final

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.faults import FaultKind


def _cancel_checkpoint(target: Target) -> None:
    newest, running = target.control.masters.answering, target.control.running_checkpoints
    if newest is None or not running:
        return
    draws, scheduler = target.draws, newest.scheduler
    checkpoint, subtasks = draws.pick(running), list(target.control.processes)
    if not subtasks:
        return
    subtask = draws.pick(subtasks)
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED
    outcome = scheduler.decline(
        scheduler.attempt_of(subtask), subtask, checkpoint, reason, "for the simulation"
    )
    target.world.trace.note(f"{subtask} declines checkpoint {checkpoint}: {outcome.value}")
    if outcome is MessageOutcome.ACCEPTED:
        target.counts.happened(FaultKind.CHECKPOINT_CANCELLED)


def _take_savepoint(target: Target) -> None:
    newest = target.control.masters.answering
    if newest is not None and newest.scheduler.state is JobState.RUNNING:
        target.counts.happened(FaultKind.SAVEPOINT)
        newest.scheduler.trigger_checkpoint(SnapshotKind.SAVEPOINT)


def _cancel_job(target: Target) -> None:
    newest = target.control.masters.answering
    if newest is not None and not newest.scheduler.state.is_terminal:
        target.counts.happened(FaultKind.JOB_CANCELLED)
        newest.scheduler.cancel()


#: What is asked for. The scenario draws it, in `draw_faults`, `draw_axes` and for the end of the first job.
REQUESTS: Final = FaultFamily(
    {
        FaultKind.CHECKPOINT_CANCELLED: _cancel_checkpoint,
        FaultKind.SAVEPOINT: _take_savepoint,
        FaultKind.JOB_CANCELLED: _cancel_job,
        FaultKind.RESCALED: lambda target: target.user.rescale(),
        FaultKind.STOPPED: lambda target: target.user.stop(drain=False),
        FaultKind.DRAINED: lambda target: target.user.stop(drain=True),
    }
)
