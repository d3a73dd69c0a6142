"""`StepJob`: a whole job in one process and one thread, in which whoever holds it decides what happens next.

Every subtask of an execution graph runs as the real step function, with the real operators, codec, state and
checkpoint files. Between them is a network in which frames are delayed, overtake each other and arrive twice;
beside them is work that is finished late, and a master whose messages come in any order. A *move* is the
smallest thing that can happen: one step, one arrival, one piece of background work. `move` makes one that is
chosen by a function that the job is given, so a seeded generator replays a run exactly; `finish` moves until
the job has ended, and fails when nothing can happen any more.

Tasks are stepped as their actors would do it, only when the last step left more to do, something arrived, or
the time that they named has come. So a wake-up that was forgotten shows as a job that stands still.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.choices import Choose, seeded
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.step_attempt import Move, StepAttempt
from penstock.runtime.testing.step_checkpoints import StepCheckpoints
from penstock.runtime.testing.step_network import StepNetworkStatistics
from penstock.runtime.testing.step_task import StepTask


class JobStuckError(AssertionError):
    """Nothing can happen any more although the job has not ended."""


@dataclass(frozen=True, slots=True)
class StepJobStatistics:
    """What happened in a job, over all attempts.

    Attributes:
        attempts: Attempts begun.
        moves: Moves made.
        completed: Checkpoints completed.
        given_up: Checkpoints given up.
        declined: Refusals of subtasks.
        network: The current attempt's network.
    """

    attempts: int
    moves: int
    completed: int
    given_up: int
    declined: int
    network: StepNetworkStatistics


class StepJob:
    """Runs a job move by move; see the module's text.

    Args:
        graph: The job.
        config: Its settings. Timers of the master (interval, timeout) do not run here.
        storage: For checkpoints.
        choose: Decides what happens next; `seeded(0)` by default.
        clock: Time; it moves only when nothing else can happen, or when the job's user moves it.
        job_id: Its id; sinks tell the transactions of two jobs apart by it.
        restore: Another job's snapshot to start from.
        open_location: Opens places of snapshots that are not in `storage`.

    Raises:
        OperatorError: A subtask could not be built.

    Attributes:
        clock: Time.
        storage: The checkpoint storage.
        checkpoints: Running and completed checkpoints.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        config: JobConfig,
        storage: SnapshotStorage,
        choose: Choose | None = None,
        clock: ManualClock | None = None,
        *,
        job_id: str = "step-job",
        restore: CompletedCheckpoint | None = None,
        open_location: StorageOpener | None = None,
    ) -> None:
        self._graph = graph
        self._config = config
        self._choose = choose or seeded(0)
        self._number = self._moves = self._given_up = 0
        self.clock = clock or ManualClock()
        self.storage = storage
        self.checkpoints = StepCheckpoints(storage, self.clock, config.checkpointing)
        self._job_id = job_id
        self._restore = restore
        self._open_location = open_location
        if restore is not None:
            self.checkpoints.follow(restore)
        self._begin_attempt()

    @property
    def tasks(self) -> dict[SubtaskId, StepTask]:
        """The subtasks of the current attempt."""
        return self._attempt.tasks

    @property
    def is_finished(self) -> bool:
        """Whether every subtask has left."""
        return all(task.is_finished for task in self.tasks.values())

    def subtask(self, vertex: str, index: int = 0) -> Subtask:
        """A subtask of the current attempt."""
        return self.tasks[SubtaskId(vertex, index)].subtask

    def move(self) -> bool:
        """Make one move of those that are possible, or let time pass; `False` when nothing can happen.

        Raises:
            OperatorError: An operator failed.
        """
        moves = self._attempt.moves() + self._settlements()
        if not moves:
            return self._attempt.pass_time()
        self._moves += 1
        moves[self._choose(len(moves))]()
        return True

    def run(self, moves: int) -> None:
        """Make so many moves, or fewer when nothing can happen any more."""
        for _ in range(moves):
            if not self.move():
                return

    def finish(self, most_moves: int = 200_000) -> None:
        """Move until the job has ended; asks for the last checkpoint as the master would.

        Raises:
            JobStuckError: It does not end.
            OperatorError: An operator failed.
        """
        for _ in range(most_moves):
            if self.is_finished:
                return
            self._ask_for_last_checkpoint()
            if not self.move():
                raise JobStuckError(self._describe())
        msg = f"the job has not ended after {most_moves} moves: {self._describe()}"
        raise JobStuckError(msg)

    def trigger_checkpoint(
        self,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        *,
        drain: bool = False,
        location: str | None = None,
    ) -> int | None:
        """Begin a checkpoint; its id, or `None` when nobody is left to take it or another one is begun."""
        started = (
            None
            if self._attempt.operators.is_starting
            else self.checkpoints.start(kind, drain=drain, location=location)
        )
        if started is None:
            return None
        checkpoint_id = started.barrier.checkpoint_id
        self._attempt.operators.start_checkpoint(checkpoint_id, partial(self._attempt.tell_sources, started))
        return checkpoint_id

    def give_up_checkpoint(self, checkpoint_id: int) -> None:
        """End a running checkpoint and tell everybody."""
        self._given_up += 1
        self._attempt.operators.give_up(checkpoint_id)
        for subtask in self.checkpoints.give_up(checkpoint_id):
            self._attempt.mail(subtask, lambda s: s.notify_checkpoint_aborted(checkpoint_id))

    def complete_checkpoint(self) -> int:
        """Begin a checkpoint, move until it is complete and its messages have arrived; returns its id.

        Raises:
            JobStuckError: It does not complete.
        """
        checkpoint_id = self.trigger_checkpoint()
        while checkpoint_id in self.checkpoints.running or any(task.mail for task in self.tasks.values()):
            if not self.move():
                break
        newest = self.checkpoints.newest
        if checkpoint_id is None or newest is None or newest.checkpoint_id < checkpoint_id:
            msg = f"checkpoint {checkpoint_id} did not complete: {self._describe()}"
            raise JobStuckError(msg)
        return checkpoint_id

    def crash(self, graph: ExecutionGraph | None = None, *, killed: SubtaskId | None = None) -> None:
        """Lose everything that is in memory or on its way, and start again from the newest checkpoint.

        Args:
            graph: The job from now on, for another parallelism.
            killed: The subtask whose process died; the others are closed, as by a master.

        Raises:
            OperatorError: A subtask could not be closed or built.
        """
        for task in self.tasks.values():
            if task.id != killed and not task.is_finished:
                task.subtask.close()
                while task.runner.waiting:
                    task.do_work(0)
        self._graph = graph or self._graph
        self._begin_attempt()

    def statistics(self) -> StepJobStatistics:
        """What happened."""
        return StepJobStatistics(
            self._number,
            self._moves,
            self.checkpoints.completed,
            self._given_up,
            self.checkpoints.declined,
            self._attempt.network.statistics(),
        )

    def _settlements(self) -> list[Move]:
        moves: list[Move] = []
        superseded = self.checkpoints.superseded()
        for checkpoint_id, running in self.checkpoints.running.items():
            if checkpoint_id in superseded:
                moves.append(partial(self.give_up_checkpoint, checkpoint_id))
            elif running.is_complete:
                moves.append(partial(self._complete, checkpoint_id))
        return moves

    def _complete(self, checkpoint_id: int) -> None:
        told = self.checkpoints.complete(checkpoint_id)
        self._attempt.operators.notify_checkpoint_complete(checkpoint_id)
        for subtask in told:
            self._attempt.mail(subtask, lambda s: s.notify_checkpoint_complete(checkpoint_id))

    def _begin_attempt(self) -> None:
        self._number += 1
        self.checkpoints.begin_attempt(self._graph, self._number)
        self._attempt = StepAttempt(
            self._job_id,
            self._number,
            self._graph,
            self._config,
            self.checkpoints.newest or self._restore,
            self.storage,
            self.checkpoints,
            self.clock,
            self._choose,
            self._open_location,
        )

    def _ask_for_last_checkpoint(self) -> None:
        waiting = [task for task in self.tasks.values() if not task.is_finished]
        if self._config.checkpointing is None or self.checkpoints.running:
            return
        if all(task.has_ended for task in waiting) and not any(task.mail for task in waiting):
            self.trigger_checkpoint()

    def _describe(self) -> str:
        phases = ", ".join(f"{task.id} {task.subtask.phase.value}" for task in self.tasks.values())
        frames, answers = len(self._attempt.network.frames), len(self._attempt.network.answers)
        running = sorted(self.checkpoints.running)
        return f"{phases}; {frames} frames, {answers} answers, checkpoints {running} under way"
