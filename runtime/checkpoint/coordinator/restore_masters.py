"""Gives what lives beside the subtasks its state back: master hooks and operator coordinators."""

from __future__ import annotations

from penstock.runtime.checkpoint.hooks.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint


def restore_masters(
    hooks: MasterHooks,
    coordinators: OperatorCoordinators,
    checkpoint: CompletedCheckpoint | None,
    *,
    allow_non_restored: bool = False,
) -> None:
    """Give master hooks and operator coordinators back what they gave for a checkpoint.

    Args:
        hooks: The hooks.
        coordinators: The coordinators.
        checkpoint: What the job starts from; `None` when it starts from nothing.
        allow_non_restored: Whether state of a hook or coordinator that is gone may be left behind.

    Raises:
        UnmatchedMasterStateError: There is such state and that is not allowed; nothing was restored.
        UnmatchedCoordinatorStateError: The same for an operator coordinator.
    """
    if checkpoint is None:
        hooks.reset()
        coordinators.reset_to_checkpoint(None)
        return
    checkpoint_id = checkpoint.checkpoint_id
    hooks.restore(checkpoint_id, checkpoint.master_states, allow_non_restored=allow_non_restored)
    coordinators.reset_to_checkpoint(
        checkpoint_id, checkpoint.operators, allow_non_restored=allow_non_restored
    )
