"""All operator coordinators of a job, as the checkpoint coordinator sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.errors import PenstockError, StorageError
from penstock.runtime.snapshot.handles import InlineHandle, OperatorState, StateHandle


class UnmatchedCoordinatorStateError(PenstockError):
    """A checkpoint holds the state of an operator coordinator that the job does not have."""


class OperatorCoordinators:
    def __init__(self, holders: Iterable[OperatorCoordinatorHolder] = ()) -> None:
        self._holders = {holder.operator_id: holder for holder in holders}
        self._on_event: Callable[[], None] | None = None

    @property
    def operator_ids(self) -> tuple[str, ...]:
        return tuple(self._holders)

    def checkpoint(
        self,
        operator_id: str,
        checkpoint_id: int,
        on_state: Callable[[StateHandle | None], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Request a coordinator's snapshot; `on_state` gets its state, or `None` if it has none."""
        self._holders[operator_id].checkpoint(
            checkpoint_id, lambda data: on_state(None if data is None else InlineHandle(data)), on_failed
        )

    def after_barrier_injection(self, checkpoint_id: int) -> None:
        for holder in self._holders.values():
            holder.after_barrier_injection(checkpoint_id)

    def abort_current_triggering(self) -> None:
        for holder in self._holders.values():
            holder.abort_current_triggering()

    def reset_to_checkpoint(
        self,
        checkpoint_id: int | None,
        operators: Mapping[str, OperatorState] | None = None,
        *,
        allow_non_restored: bool = False,
    ) -> None:
        """Reset all coordinators to their states in a checkpoint; without one, to their initial states.

        Raises:
            UnmatchedCoordinatorStateError: The checkpoint has state of a coordinator that the job does not
                have, and `allow_non_restored` is false; nothing was restored.
            StorageError: A coordinator's state is not in the metadata.
        """
        known = operators or {}
        unmatched = [o for o, s in known.items() if s.coordinator is not None and o not in self._holders]
        if unmatched and not allow_non_restored:
            msg = (
                f"checkpoint {checkpoint_id} holds coordinators' state for operators without a coordinator "
                f"in this job: {', '.join(unmatched)}. Splits or other work that was not yet assigned "
                "would be lost. Keep each of these operators as it was, or restore with "
                "allow_non_restored_state=True"
            )
            raise UnmatchedCoordinatorStateError(msg)
        for operator_id, holder in self._holders.items():
            _reset(holder, checkpoint_id, known.get(operator_id))

    def start(self) -> None:
        for holder in self._holders.values():
            holder.start()

    def handle_event(self, operator_id: str, subtask: int, event: Any) -> bool:
        """Handle an event of a subtask; return false if its operator has no coordinator."""
        holder = self._holders.get(operator_id)
        if holder is None:
            return False
        holder.handle_event(subtask, event)
        if self._on_event is not None:
            self._on_event()
        return True

    def when_event_came(self, callback: Callable[[], None]) -> None:
        """Set a callback that runs after every event of a subtask; a checkpoint may wait for that event."""
        self._on_event = callback

    def subtask_acknowledged(self, checkpoint_id: int, subtask: int, events: Mapping[str, int]) -> None:
        """Note a subtask's acknowledgement; `events` has the number of sent events by operator id."""
        for operator_id, number in events.items():
            if (holder := self._holders.get(operator_id)) is not None:
                holder.subtask_acknowledged(checkpoint_id, subtask, number)

    def have_all_events(self, checkpoint_id: int) -> bool:
        return not any(holder.missing_events(checkpoint_id) for holder in self._holders.values())

    def missing_events(self, checkpoint_id: int) -> tuple[str, ...]:
        """Descriptions of the events that a checkpoint waits for."""
        return tuple(
            f"events of {operator_id}[{missing.subtask}] for its coordinator "
            f"({missing.received} of {missing.sent} have arrived)"
            for operator_id, holder in self._holders.items()
            for missing in holder.missing_events(checkpoint_id)
        )

    def recorded_states(self, checkpoint_id: int) -> dict[str, StateHandle]:
        found = {id: holder.recorded_state(checkpoint_id) for id, holder in self._holders.items()}
        return {id: InlineHandle(data) for id, data in found.items() if data is not None}

    def reset_operator(
        self, operator_id: str, checkpoint_id: int | None, operators: Mapping[str, OperatorState]
    ) -> None:
        holder = self._holders[operator_id]
        _reset(holder, checkpoint_id, operators.get(operator_id))
        holder.start()

    def subtask_failed(self, operator_id: str, subtask: int, reason: str) -> None:
        if (holder := self._holders.get(operator_id)) is not None:
            holder.subtask_failed(subtask, reason)

    def subtask_reset(self, operator_id: str, subtask: int, checkpoint_id: int | None) -> None:
        if (holder := self._holders.get(operator_id)) is not None:
            holder.subtask_reset(subtask, checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for holder in self._holders.values():
            holder.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        for holder in self._holders.values():
            holder.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        holders, self._holders = self._holders, {}
        for holder in holders.values():
            holder.close()


def _reset(holder: OperatorCoordinatorHolder, checkpoint_id: int | None, state: OperatorState | None) -> None:
    if state is None:
        holder.reset_to_checkpoint(None, None)
        return
    handle = state.coordinator
    if handle is not None and not isinstance(handle, InlineHandle):
        msg = f"the state of the coordinator of {holder.operator_id!r} is not in the checkpoint's metadata"
        raise StorageError(msg)
    holder.reset_to_checkpoint(checkpoint_id, None if handle is None else handle.data)
