"""A scripted job with what tests of a source's part in the JobMaster look at.

The scheduler deploys, asks and stops subtasks that really run. So what a source has in the JobMaster and what
it has in its readers meet as on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory_storages import MemoryPlaces
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage


class LiveJob:
    """One JobMaster and its subtasks. Several may follow each other over one storage."""

    def __init__(
        self,
        graph: ExecutionGraph,
        config: JobConfig,
        storage: MemoryStorage,
        seed: int,
        job_id: str = "job",
        places: MemoryPlaces | None = None,
        restore_from: str | None = None,
    ) -> None:
        self._job = ScriptedJob(
            graph,
            config,
            storage,
            seed,
            job_id=job_id,
            restore_from=restore_from,
            open_location=places,
        )
        self.restored = [self.scheduler.statistics().restored_checkpoint]

    @property
    def scheduler(self) -> JobScheduler:
        return self._job.scheduler

    @property
    def ended(self) -> JobState | None:
        return self.scheduler.state if self.scheduler.state.is_terminal else None

    def until(self, reached: Callable[[], bool]) -> None:
        """Move until something holds."""
        self._job.until(reached, "what the test waits for")

    def checkpoint(self, meanwhile: Callable[[], None] = lambda: None) -> CompletedCheckpoint:
        """Take a checkpoint from its start until all subtasks know that it is complete."""
        answers: list[Any] = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        meanwhile()
        self.until(lambda: bool(answers))
        self._job.until_told()
        checkpoint: CompletedCheckpoint = answers[0].checkpoint
        return checkpoint

    def acknowledged(self, checkpoint_id: int) -> int:
        """Number of subtasks that have acknowledged a checkpoint."""
        records = self.scheduler.statistics().checkpoint_history
        return sum(record.acknowledged for record in records if record.checkpoint_id == checkpoint_id)

    def fail(self, subtask: SubtaskId) -> None:
        """The process of a subtask dies; go on until all run again."""
        self._job.crash(killed=subtask)
        self.restored.append(self.scheduler.statistics().restored_checkpoint)

    def die(self) -> None:
        """The JobMaster dies, and its subtasks with it."""
        self._job.abandon()

    def finish(self) -> None:
        """Move until the job has ended, and nothing of it is left to be done."""
        self._job.finish()
        self._job.run(10_000)
