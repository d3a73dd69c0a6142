"""`StepCheckpoints`: the checkpoints of a `StepJob`, without timers and without a log.

It starts checkpoints, collects acknowledgements, and says when one may be completed or must be given up; who
does so, and when, decides the job. Who takes part and what a checkpoint consists of is decided by the real
`CheckpointPlanner`.

Files go as soon as the rules allow it, which is when a fault in sharing them shows: the newest completed
checkpoint is kept, and those that a running one was told to build on; everything else is deleted. So is a
savepoint that is not the newest any more, as its user may do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.runtime.checkpoint.coordinator.operator_states import collect_states, with_coordinators
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan, CheckpointPlanner, NotAllRunning
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.ports import Clock, SnapshotStorage
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import FileHandle, StateHandle, SubtaskSnapshot
from penstock.runtime.snapshot.subtask_id import SubtaskId


@dataclass(slots=True)
class RunningCheckpoint:
    """A checkpoint that is being taken.

    Attributes:
        barrier: What sources are given.
        plan: Who takes part.
        acknowledged: What came in.
        declined: Whether somebody can't take part.
        coordinators: What operator coordinators gave.
    """

    barrier: CheckpointBarrier
    plan: CheckpointPlan
    acknowledged: dict[SubtaskId, SubtaskSnapshot] = field(default_factory=dict)
    declined: bool = False
    coordinators: dict[str, StateHandle] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether everybody has acknowledged it."""
        return not self.declined and len(self.acknowledged) == len(self.plan.acknowledge)


class StepCheckpoints:
    """Checkpoints of one job over all its attempts; see the module's text.

    Args:
        storage: Where files are.
        clock: Time.
        checkpointing: How checkpoints are taken; aligned by default.

    Attributes:
        running: Checkpoints that are being taken, by id.
        newest: The newest completed checkpoint.
        completed: How many were completed.
        declined: How many were declined.
    """

    def __init__(
        self, storage: SnapshotStorage, clock: Clock, checkpointing: Checkpointing | None = None
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._options = CheckpointOptions if checkpointing is None else checkpointing.options
        self._planner: CheckpointPlanner | None = None
        self._attempt = 0
        self._next_id = 1
        self._base_id = -1
        self._kept: dict[int, CompletedCheckpoint] = {}
        self._files: set[str] = set()
        self.running: dict[int, RunningCheckpoint] = {}
        self._followed: CompletedCheckpoint | None = None
        self.newest: CompletedCheckpoint | None = None
        self.completed = self.declined = 0

    def begin_attempt(self, graph: ExecutionGraph, attempt: int) -> None:
        """Everything of the last attempt is over; the subtasks of a new one run."""
        self._planner = CheckpointPlanner(graph)
        restored = self.newest or self._followed
        if restored is not None:
            self._planner.restored(restored.operators)
        self._planner.started()
        self._attempt = attempt
        self.running.clear()
        self._delete_files()

    def follow(self, checkpoint: CompletedCheckpoint) -> None:
        """The job starts from another one's snapshot: ids go on behind it."""
        self._next_id = checkpoint.checkpoint_id + 1
        self._followed = checkpoint

    def start(
        self,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        *,
        drain: bool = False,
        location: str | None = None,
    ) -> RunningCheckpoint | None:
        """Begin a checkpoint; `None` when nobody is left."""
        plan = self._plan.plan()
        if isinstance(plan, NotAllRunning):
            return None
        options = replace(self._options(kind), drain=drain, location=location)
        barrier = CheckpointBarrier(self._next_id, self._clock.now(), options, self._base_id)
        self._next_id += 1
        started = self.running[barrier.checkpoint_id] = RunningCheckpoint(barrier, plan)
        return started

    def acknowledge(self, subtask: SubtaskId, checkpoint_id: int, snapshot: SubtaskSnapshot) -> None:
        """A subtask's part of a checkpoint is durable."""
        self._files.update(file.path for file in snapshot.files())
        running = self.running.get(checkpoint_id)
        if running is None:
            self._delete_files()
            return
        assert subtask in running.plan.acknowledge, f"{subtask} takes no part in checkpoint {checkpoint_id}"
        assert subtask not in running.acknowledged, f"{subtask} acknowledged {checkpoint_id} twice"
        running.acknowledged[subtask] = snapshot

    def decline(self, subtask: SubtaskId, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """A subtask can't take part."""
        self.declined += 1
        if checkpoint_id in self.running:
            self.running[checkpoint_id].declined = True

    def complete(self, checkpoint_id: int) -> tuple[SubtaskId, ...]:
        """Make a checkpoint that everybody acknowledged exist; returns whom to tell. Older ones end."""
        running = self.running.pop(checkpoint_id)
        assert running.is_complete, f"checkpoint {checkpoint_id} is not complete"
        previous = {} if self.newest is None else self.newest.operators
        operators = collect_states(self._plan.graph, running.acknowledged, running.plan.finished, previous)
        operators = with_coordinators(self._plan.graph, operators, running.coordinators)
        now = self._clock.now()
        kind = running.barrier.options.kind
        self.newest = CompletedCheckpoint(
            checkpoint_id,
            self._attempt,
            kind,
            operators,
            running.barrier.timestamp,
            now,
            location=running.barrier.options.location,
        )
        self._kept[checkpoint_id] = self.newest
        if not kind.is_savepoint:
            self._base_id = checkpoint_id
        self.completed += 1
        self._delete_files()
        return self._unfinished(running)

    def give_up(self, checkpoint_id: int) -> tuple[SubtaskId, ...]:
        """End a running checkpoint; returns whom to tell."""
        running = self.running.pop(checkpoint_id)
        self._delete_files()
        return self._unfinished(running)

    def superseded(self) -> tuple[int, ...]:
        """Running checkpoints that must be given up: declined, overtaken, or somebody has left."""
        newest = -1 if self.newest is None else self.newest.checkpoint_id
        return tuple(
            checkpoint_id
            for checkpoint_id, running in self.running.items()
            if running.declined or checkpoint_id < newest or self._is_left(running)
        )

    def data_ended(self, subtask: SubtaskId) -> tuple[CheckpointBarrier, ...]:
        """A subtask has processed the end of its inputs; barriers of checkpoints it may have to start."""
        self._plan.data_ended(subtask)
        return tuple(
            running.barrier
            for running in self.running.values()
            if subtask not in running.acknowledged and subtask not in running.plan.trigger
        )

    def finished(self, subtask: SubtaskId) -> None:
        """A subtask has left."""
        self._plan.finished(subtask)

    def files(self) -> Iterator[FileHandle]:
        """Every file that something may still need."""
        for checkpoint in self._kept.values():
            yield from checkpoint.own_files()
        for running in self.running.values():
            for snapshot in running.acknowledged.values():
                yield from snapshot.files()

    def _is_left(self, running: RunningCheckpoint) -> bool:
        gone = set(running.plan.acknowledge) - set(self._plan.unfinished)
        return not gone <= running.acknowledged.keys()

    def _unfinished(self, running: RunningCheckpoint) -> tuple[SubtaskId, ...]:
        unfinished = self._plan.unfinished
        return tuple(subtask for subtask in running.plan.commit if subtask in unfinished)

    def _delete_files(self) -> None:
        needed = {running.barrier.confirmed_id for running in self.running.values()} | {self._base_id}
        if self.newest is not None:
            needed.add(self.newest.checkpoint_id)
        self._kept = {known: c for known, c in self._kept.items() if known in needed}
        gone = self._files - {file.path for file in self.files()}
        self._storage.delete(sorted(gone))
        self._files -= gone

    @property
    def _plan(self) -> CheckpointPlanner:
        assert self._planner is not None, "begin_attempt comes first"
        return self._planner
