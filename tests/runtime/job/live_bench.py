"""A whole job in one thread: the real scheduler above the real subtasks, moved by a test.

`StepJob` has subtasks and no scheduler, the other benches have a scheduler and record what it asks for. Here
the scheduler deploys, asks and stops subtasks that really run: what a source has in the JobMaster and what it
has in its readers meet as on a cluster. One choice after the other decides what happens next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.choices import Choose
from penstock.runtime.testing.manual_time import ManualAsyncRunner, ManualClock, ManualTimers
from penstock.runtime.testing.memory_places import MemoryPlaces
from penstock.runtime.testing.step_attempt import StepAttempt


class LiveJob:
    """One JobMaster and its subtasks; it is their gateway, and what they report to.

    Several may follow each other over one storage. Timers fire only in `fail`.
    """

    def __init__(
        self,
        graph: ExecutionGraph,
        config: JobConfig,
        storage: MemoryStorage,
        choose: Choose,
        job_id: str = "job",
        places: MemoryPlaces | None = None,
    ) -> None:
        self._graph, self._config, self._choose = graph, config, choose
        self._job_id, self._places = job_id, places
        self.storage = storage
        self._clock = ManualClock()
        self.timers, self.runner = ManualTimers(self._clock), ManualAsyncRunner()
        self._answers: list[Callable[[], None]] = []
        self._attempt: StepAttempt | None = None
        self._runs = False
        self.restored: list[int | None] = []
        self.acknowledged: list[tuple[SubtaskId, int]] = []
        self.ended: JobState | None = None
        clock, timers, runner = self._clock, self.timers, self.runner
        self.scheduler = JobScheduler(
            job_id, graph, config, self, storage, clock, timers, runner, open_location=places
        )

    def begin(self) -> LiveJob:
        """Start, and go on until all subtasks run."""
        self.scheduler.start()
        self.until(lambda: self.scheduler.state is JobState.RUNNING)
        return self

    def move(self) -> bool:
        """Let one thing happen, or time pass; `False` when nothing can happen."""
        moves = [] if self._attempt is None or not self._runs else self._attempt.moves()
        if self._answers:
            moves.append(lambda: self._answers.pop(0)())
        if self.runner.waiting:
            moves.append(lambda: self.runner.run_next(self._choose(self.runner.waiting)))
        if not moves:
            return self._attempt is not None and self._attempt.pass_time()
        moves[self._choose(len(moves))]()
        return True

    def until(self, reached: Callable[[], bool]) -> None:
        """Move until something holds."""
        for _ in range(20_000):
            if reached():
                return
            assert self.move(), f"nothing can happen any more, the job is {self.scheduler.state.value}"
        raise AssertionError(f"not reached, the job is {self.scheduler.state.value}")

    def checkpoint(self, meanwhile: Callable[[], None] = lambda: None) -> CompletedCheckpoint:
        """Take a checkpoint from its start until all subtasks know that it is complete."""
        answers: list[Any] = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        meanwhile()
        self.until(lambda: bool(answers) and not self._is_mail_on_its_way())
        checkpoint: CompletedCheckpoint = answers[0].checkpoint
        return checkpoint

    def fail(self, subtask: SubtaskId) -> None:
        """The process of a subtask dies; go on until all run again."""
        number = self.scheduler.attempt
        self.scheduler.on_subtask_failed(number, subtask, FailureCause("its process died"))
        self.until(lambda: not self._runs and not self._answers and not self.runner.waiting)
        self.timers.advance(2)  # the pause before a restart
        self.until(lambda: self.scheduler.state is JobState.RUNNING)

    def die(self) -> None:
        """The JobMaster dies, and its subtasks with it."""
        self._close()

    def finish(self) -> None:
        """Move until the job has ended, and nothing of it is left to be done."""
        self.until(lambda: self.ended is not None and not self.runner.waiting)

    def _is_mail_on_its_way(self) -> bool:
        return self._attempt is not None and any(task.mail for task in self._attempt.tasks.values())

    # -- the gateway of the scheduler ----------------------------------------------------------------------

    def deploy(self, attempt: int, restore: CompletedCheckpoint | None) -> None:
        self.restored.append(None if restore is None else restore.checkpoint_id)
        reports: Any = self
        self._attempt = StepAttempt(
            self._job_id,
            attempt,
            self._graph,
            self._config,
            restore,
            self.storage,
            reports,
            self._clock,
            self._choose,
            self._places,
        )
        self._answers.append(partial(self.scheduler.on_deployed, attempt))

    def start(self, attempt: int) -> None:
        self._runs = True
        self._answers.append(partial(self.scheduler.on_started, attempt))

    def stop_all(self, attempt: int) -> None:
        self._close()
        self._answers.append(partial(self.scheduler.on_all_stopped, attempt))

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        self._tell(subtasks, lambda subtask: subtask.trigger_checkpoint(barrier))

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self._tell(subtasks, lambda subtask: subtask.notify_checkpoint_complete(checkpoint_id))

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        self._tell(subtasks, lambda subtask: subtask.notify_checkpoint_aborted(checkpoint_id))

    def job_ended(self, state: JobState, cause: str) -> None:
        self.ended = state

    # -- what subtasks report ------------------------------------------------------------------------------

    def acknowledge(self, subtask: SubtaskId, checkpoint_id: int, snapshot: SubtaskSnapshot) -> None:
        self.acknowledged.append((subtask, checkpoint_id))
        number = self.scheduler.attempt
        self.scheduler.acknowledge(number, subtask, checkpoint_id, snapshot, CheckpointMetrics())

    def decline(self, subtask: SubtaskId, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        self.scheduler.decline(self.scheduler.attempt, subtask, checkpoint_id, reason)

    def data_ended(self, subtask: SubtaskId) -> tuple[CheckpointBarrier, ...]:
        self.scheduler.on_end_of_data(self.scheduler.attempt, subtask)
        return ()

    def finished(self, subtask: SubtaskId) -> None:
        self.scheduler.on_subtask_finished(self.scheduler.attempt, subtask)

    def _tell(self, subtasks: Sequence[SubtaskId], message: Callable[[Subtask], None]) -> None:
        assert self._attempt is not None, "nobody is deployed"
        for subtask in subtasks:
            self._attempt.mail(subtask, message)

    def _close(self) -> None:
        attempt, self._attempt, self._runs = self._attempt, None, False
        for task in () if attempt is None else attempt.tasks.values():
            if not task.is_finished:
                task.subtask.close()
