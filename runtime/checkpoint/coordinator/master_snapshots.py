"""The part of a checkpoint that is taken in the JobMaster: operator coordinators and master hooks.

Coordinators give their snapshots first, and the valve of each is closed after it. Then the hooks do their
part. Only when the last answer has come are the sources triggered and the valves opened again.

Coordinators come before hooks (Flink since 1.11.2). A hook may make an externally induced source begin the
checkpoint by itself. A coordinator's snapshot must not be younger than any source's barrier.

One checkpoint at a time. In between anything may happen: the timeout, the end of the attempt. `stop` ends the
round: valves open, and an answer that comes later is ignored.

What it must never do: leave a valve shut after a round that is over, or report the end of one twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.error_text import error_text
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import MasterState, StateHandle


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    pending: PendingCheckpoint
    on_taken: Callable[[], None]
    on_failed: Callable[[str], None]


class MasterSnapshots:
    def __init__(self, coordinators: OperatorCoordinators, hooks: MasterHooks) -> None:
        self._coordinators = coordinators
        self._hooks = hooks
        self._round: _Round | None = None

    def take(
        self, pending: PendingCheckpoint, on_taken: Callable[[], None], on_failed: Callable[[str], None]
    ) -> None:
        """Ask all of them; each answer is noted in `pending`.

        Args:
            on_taken: Called when the last answer has come; `barriers_injected` is to follow.
            on_failed: Called with the cause, in words, when one of them could not do its part; `stop` is to
                follow.
        """
        current = self._round = _Round(pending, on_taken, on_failed)
        if not self._coordinators.operator_ids:
            self._ask_hooks(current)
        for operator_id in self._coordinators.operator_ids:
            if current is self._round:
                self._ask_coordinator(current, operator_id)

    def barriers_injected(self, checkpoint_id: int) -> None:
        """The sources have their barriers: the round is over, and the valves open."""
        self._round = None
        self._coordinators.after_barrier_injection(checkpoint_id)

    def stop(self) -> bool:
        """Give the round up: the valves open, and answers are ignored; `False` when there is none."""
        if self._round is None:
            return False
        self._round = None
        self._coordinators.abort_current_triggering()
        return True

    def _ask_coordinator(self, current: _Round, operator_id: str) -> None:
        pending = current.pending

        def answered(state: StateHandle | None) -> None:
            if self._goes_on(current):
                pending.acknowledge_coordinator(operator_id, state)
                if not pending.missing_coordinators:
                    self._ask_hooks(current)

        def failed(error: BaseException) -> None:
            self._failed(current, f"the coordinator of operator {operator_id!r}", error)

        self._coordinators.checkpoint(operator_id, pending.checkpoint_id, answered, failed)

    def _ask_hooks(self, current: _Round) -> None:
        if not self._hooks.identifiers:
            current.on_taken()
        for identifier in self._hooks.identifiers:
            if current is self._round:
                self._ask_hook(current, identifier)

    def _ask_hook(self, current: _Round, identifier: str) -> None:
        pending = current.pending

        def answered(state: MasterState | None) -> None:
            if self._goes_on(current):
                pending.acknowledge_master(identifier, state)
                if not pending.missing_masters:
                    current.on_taken()

        def failed(error: BaseException) -> None:
            self._failed(current, f"the master hook {identifier!r}", error)

        self._hooks.trigger(identifier, pending.checkpoint_id, pending.triggered_at, answered, failed)

    def _goes_on(self, current: _Round) -> bool:
        """Whether an answer still counts; fails a round that is open although its checkpoint was aborted."""
        if current is not self._round:
            return False
        if current.pending.is_disposed:
            current.on_failed("it was aborted meanwhile")
            return False
        return True

    def _failed(self, current: _Round, who: str, error: BaseException) -> None:
        if current is self._round:
            current.on_failed(f"{who} failed: {error_text(error)}")


def restore_masters(
    hooks: MasterHooks,
    coordinators: OperatorCoordinators,
    checkpoint: CompletedCheckpoint | None,
    *,
    allow_non_restored: bool = False,
) -> None:
    """Restore master hooks and operator coordinators from a checkpoint.

    Args:
        checkpoint: The start of the job; `None` when it starts from nothing.
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
