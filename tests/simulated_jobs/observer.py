"""The observer of simulated runs: checks master hooks, and counts events at the valves of coordinators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.watches import RunObserver
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World


class ValveWatch:
    """Counts events at the valves of operator coordinators, which hold splits back during a checkpoint."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_shut: dict[str, Callable[[], bool]] = {}

    def enumerator_made(self, operator: str, is_shut: Callable[[], bool]) -> None:
        self._is_shut[operator] = is_shut

    def coordinator_snapshot(self, operator: str) -> None:
        """Note that the enumerator has returned its snapshot; the barriers follow."""
        self._world.on_moment(Moment.COORDINATED)

    def split_assigned(self, operator: str) -> None:
        is_shut = self._is_shut.get(operator)  # `None` in a JobMaster that was believed to be dead
        self._world.counts.happened(FaultKind.SPLIT_HELD, int(is_shut is not None and is_shut()))

    def splits_given_back(self, operator: str, splits: int) -> None:
        self._world.counts.happened(FaultKind.SPLITS_GIVEN_BACK, splits)

    def process_died(self) -> None:
        any_shut = any(is_shut() for is_shut in self._is_shut.values())
        self._world.counts.happened(FaultKind.CRASH_AT_VALVE, int(any_shut))

    def clear(self) -> None:
        self._is_shut.clear()


#: The hook has not been called.
_NOT_ASKED: Final = (-1, None)

#: The hook was reset: the job starts without a checkpoint.
_RESET: Final = (None, None)


class SimulatedHook:
    """One hook in one JobMaster; `restored` is the checkpoint and the state of its last restore."""

    def __init__(self, identifier: str, ledger: SimulatedObserver) -> None:
        self.identifier = identifier
        self.restored: tuple[int | None, Any] = _NOT_ASKED
        self._ledger = ledger

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> str:
        return self._ledger.answer(self.identifier, checkpoint_id)

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        self.restored = checkpoint_id, state

    def reset(self) -> None:
        self.restored = _RESET

    def close(self) -> None: ...


class SimulatedObserver(RunObserver):
    """The external system behind the master hooks, which outlives every JobMaster, and the valves of a run.

    It keeps the state that each hook returned for each checkpoint. So it can check that a restore gives each
    hook exactly its own state. It also checks that no subtask takes part in a checkpoint before all hooks
    have done their part.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.valves = ValveWatch(world)
        self._made: list[SimulatedHook] = []
        self._hooks: dict[object, list[SimulatedHook]] = {}
        self._answers: dict[tuple[str, int], list[str]] = {}
        self._codec = ValueCodec()
        self._to_fail = 0
        self._lateness = 0.0

    def make_hook(self, identifier: str) -> SimulatedHook:
        hook = SimulatedHook(identifier, self)
        self._made.append(hook)
        return hook

    def process_died(self) -> None:
        self.valves.process_died()

    def jobmaster_begun(self, master: object) -> None:
        self._hooks[master], self._made = self._made, []

    def jobmaster_died(self) -> None:
        self.valves.process_died()
        self.valves.clear()

    def fail_next_hook(self) -> None:
        self._to_fail += 1

    def delay_next_hook(self, seconds: float) -> None:
        self._lateness = seconds

    def answer(self, identifier: str, checkpoint_id: int) -> str:
        """Return a hook's state of a checkpoint, never the same twice; may fail with `SimulatedUserError`."""
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

    def checkpoint_triggered(self, master: object, checkpoint_id: int) -> None:
        """Fail if a checkpoint is triggered before all hooks have done their part."""
        for hook in self._hooks[master]:
            if (hook.identifier, checkpoint_id) not in self._answers:
                msg = f"checkpoint {checkpoint_id} is triggered before {hook.identifier} was asked"
                raise AssertionError(msg)

    def job_deployed(self, master: object, restore: CompletedCheckpoint | None) -> None:
        """Fail if the job starts from `restore`, and a hook did not get its state of that checkpoint."""
        states = {} if restore is None else {s.identifier: s.data for s in restore.master_states}
        for hook in self._hooks[master]:
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
            call = "nothing" if asked == _NOT_ASKED else "a reset" if asked == _RESET else f"restore {asked}"
            msg = f"the job starts from {what}, but {hook.identifier} got {call}"
            raise AssertionError(msg)
