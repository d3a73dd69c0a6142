"""A submitted job, and the ledgers of its master hooks and restarts; one run may submit two jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import SimulatedUserError, World

#: The ids of the first job of a run, and of the job that continues from its savepoint.
FIRST_JOB: Final = "simulated"

SECOND_JOB: Final = "simulated-again"


class UserCode(Protocol):
    """Copies users' objects for processes; a cluster pickles them for each process."""

    def graph_for_master(self) -> ExecutionGraph:
        """The job with its own copies of objects."""
        ...

    def task_for_process(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """The task with its own copies of objects; calls `effect` before each effect of users' code."""
        ...


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job.

    Attributes:
        code: Copies users' objects for each process; `None` shares them.
        is_new: Whether its first JobMaster treats it as just submitted.
        compact_every: Number of records after which its log is compacted.
        inline_limit: Maximum bytes of a state that stays in the metadata; `None` for the default.
    """

    id: str
    graph: ExecutionGraph
    config: JobConfig
    code: UserCode | None = None
    is_new: bool = True
    compact_every: int = COMPACT_EVERY
    inline_limit: int | None = None

    def received(self) -> SimulatedJob:
        """The job as a JobMaster receives it."""
        return self if self.code is None else replace(self, graph=self.code.graph_for_master())

    def received_task(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """The task as a process receives it; `effect` is called before users' code has an effect outside."""
        return task if self.code is None else self.code.task_for_process(task, effect)


#: The hook has not been called.
_NOT_ASKED: Final = (-1, None)

#: The hook was reset: the job starts without a checkpoint.
_RESET: Final = (None, None)


class SimulatedHook:
    """One hook in one JobMaster; `restored` is the checkpoint and the state of its last restore."""

    def __init__(self, identifier: str, ledger: HookLedger) -> None:
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


class HookLedger:
    """The external system behind the master hooks, which outlives every JobMaster.

    It keeps the state that each hook returned for each checkpoint. So it can check that a restore gives each
    hook exactly its own state. It also checks that no subtask takes part in a checkpoint before all hooks
    have done their part.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: list[SimulatedHook] = []
        self._answers: dict[tuple[str, int], list[str]] = {}
        self._codec = ValueCodec()
        self._to_fail = 0
        self._lateness = 0.0

    def make(self, identifier: str) -> SimulatedHook:
        hook = SimulatedHook(identifier, self)
        self._made.append(hook)
        return hook

    def take_made(self) -> tuple[SimulatedHook, ...]:
        made, self._made = self._made, []
        return tuple(made)

    def fail_next(self) -> None:
        self._to_fail += 1

    def delay_next(self, seconds: float) -> None:
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

    def check_triggered(self, hooks: Sequence[SimulatedHook], checkpoint_id: int) -> None:
        """Fail if a checkpoint is triggered before all hooks have done their part."""
        for hook in hooks:
            if (hook.identifier, checkpoint_id) not in self._answers:
                msg = f"checkpoint {checkpoint_id} is triggered before {hook.identifier} was asked"
                raise AssertionError(msg)

    def check_restored(self, hooks: Sequence[SimulatedHook], restore: CompletedCheckpoint | None) -> None:
        """Fail if the job starts from `restore`, and a hook did not get its state of that checkpoint."""
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
            call = "nothing" if asked == _NOT_ASKED else "a reset" if asked == _RESET else f"restore {asked}"
            msg = f"the job starts from {what}, but {hook.identifier} got {call}"
            raise AssertionError(msg)


@dataclass(slots=True)
class RestartLedger:
    """The times of a job's attempts, in the world's time.

    The oracle uses them to check that the job restarted as often as its user allows. They do not rely on the
    job's own counters.

    Attributes:
        deployed: Time of each deployment, of the job or of a region, including the first one.
        stopped: Time at which the previous attempt was stopped; for the first deployment its own time.
        last_stop: Time of the last stop of an attempt, whether or not another one followed.
    """

    masters: int = 0
    deployed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    last_stop: float = 0.0

    def note_deployment(self, now: float) -> None:
        self.stopped.append(self.last_stop if self.deployed else now)
        self.deployed.append(now)

    def note_stop(self, now: float) -> None:
        self.last_stop = now
