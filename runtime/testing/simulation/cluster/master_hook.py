"""Master hooks of a simulated job, and the ledger of their snapshots and restores.

The ledger is the external system behind the hooks: it outlives every JobMaster. It keeps what each hook
returned for each checkpoint. So it can check that a restore gives each hook exactly its own data. It also
checks that no subtask is notified of a checkpoint before all hooks have done their part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World

#: The hook has not been asked for anything.
_NOT_ASKED: Final = (-1, None)

#: The hook was told that the job starts from nothing.
_RESET: Final = (None, None)


class SimulatedHook:
    """One hook in one JobMaster.

    Args:
        identifier: Its name.
        ledger: Knows what it does.

    Attributes:
        restored: The checkpoint that it was last asked to restore, and its state of that.
    """

    def __init__(self, identifier: str, ledger: HookLedger) -> None:
        self.identifier = identifier
        self.restored: tuple[int | None, Any] = _NOT_ASKED
        self._ledger = ledger

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> str:
        """Do the hook's part.

        Raises:
            SimulatedUserError: It was set up to fail.
        """
        return self._ledger.answer(self.identifier, checkpoint_id)

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """The job starts from this checkpoint."""
        self.restored = checkpoint_id, state

    def reset(self) -> None:
        """The job starts from nothing."""
        self.restored = _RESET

    def close(self) -> None:
        """The job has ended."""


class HookLedger:
    """What all hooks of a run did; see the module's text.

    Args:
        world: Time and counts.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: list[SimulatedHook] = []
        self._answers: dict[tuple[str, int], list[str]] = {}
        self._codec = ValueCodec()
        self._to_fail = 0
        self._lateness = 0.0

    def make(self, identifier: str) -> SimulatedHook:
        """A hook, for the JobMaster that begins."""
        hook = SimulatedHook(identifier, self)
        self._made.append(hook)
        return hook

    def take_made(self) -> tuple[SimulatedHook, ...]:
        """The hooks of the JobMaster that has just begun."""
        made, self._made = self._made, []
        return tuple(made)

    def fail_next(self) -> None:
        """Let the next question to a hook fail."""
        self._to_fail += 1

    def delay_next(self, seconds: float) -> None:
        """Let the next answer of a hook come late."""
        self._lateness = seconds

    def answer(self, identifier: str, checkpoint_id: int) -> str:
        """A hook's state of a checkpoint: never the same twice.

        Raises:
            SimulatedUserError: The hook is to fail.
        """
        world = self._world
        if self._to_fail and not world.is_calm:
            self._to_fail -= 1
            world.counts.happened(FaultKind.HOOK_FAILED)
            msg = f"{identifier} can't do its part of checkpoint {checkpoint_id}: simulated"
            raise SimulatedUserError(msg)
        if self._lateness and not world.is_calm:
            world.counts.happened(FaultKind.HOOK_LATE)
            world.answer_is_late_by(self._lateness)
            self._lateness = 0.0
        given = self._answers.setdefault((identifier, checkpoint_id), [])
        given.append(f"{identifier}, checkpoint {checkpoint_id}, answer {len(given)}")
        return given[-1]

    def check_triggered(self, hooks: Sequence[SimulatedHook], checkpoint_id: int) -> None:
        """Subtasks are told of a checkpoint.

        Raises:
            AssertionError: A hook has not done its part.
        """
        for hook in hooks:
            if (hook.identifier, checkpoint_id) not in self._answers:
                msg = f"checkpoint {checkpoint_id} is triggered before {hook.identifier} was asked"
                raise AssertionError(msg)

    def check_restored(self, hooks: Sequence[SimulatedHook], restore: CompletedCheckpoint | None) -> None:
        """The whole job is deployed.

        Args:
            hooks: Of the JobMaster that deploys.
            restore: What the job starts from.

        Raises:
            AssertionError: A hook was not given back what it gave for that, or was not asked at all.
        """
        states = {} if restore is None else {s.identifier: s.data for s in restore.master_states}
        for hook in hooks:
            asked, hook.restored = hook.restored, _NOT_ASKED
            if restore is None:
                self._require(asked == _RESET, hook, "nothing", asked)
                continue
            checkpoint_id = restore.checkpoint_id
            data = states.get(hook.identifier)
            state = None if data is None else self._codec.loads(data)
            what = f"checkpoint {checkpoint_id}, which holds {state!r} of it"
            self._require(asked == (checkpoint_id, state), hook, what, asked)
            given = self._answers.get((hook.identifier, checkpoint_id), [])
            self._require(state in given, hook, f"{what}, although it gave {given}", asked)
            self._world.counts.happened(FaultKind.HOOK_RESTORED)

    def _require(self, holds: bool, hook: SimulatedHook, what: str, asked: tuple[Any, Any]) -> None:
        if not holds:
            heard = "nothing" if asked == _NOT_ASKED else "a reset" if asked == _RESET else f"restore {asked}"
            msg = f"the job starts from {what}, but {hook.identifier} was told {heard}"
            raise AssertionError(msg)
