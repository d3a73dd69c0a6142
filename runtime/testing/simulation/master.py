"""`Master`: the process of the JobMaster, with the real scheduler in it and what it needs around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.runtime.checkpoint.snapshot import SubtaskId
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.job.execution_gateway import ExecutionGateway
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.testing.manual_time import ManualTimers
from penstock.runtime.testing.simulation.agenda import Happening
from penstock.runtime.testing.simulation.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.simulated_work import SimulatedRunner
from penstock.runtime.testing.simulation.world import World

if TYPE_CHECKING:
    from typing import Any

#: The job's id in the storage.
JOB_ID = "simulated"


class Master:
    """Holds the scheduler and carries what others say to it.

    Args:
        world: Time, chance and storage.

    Attributes:
        timers: Its timers.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler: JobScheduler | None = None
        self.timers = ManualTimers(world.clock)
        self._runner = SimulatedRunner(world, "JobMaster", _run, self._do_work, self._on_work)

    @property
    def scheduler(self) -> JobScheduler:
        """The scheduler."""
        assert self._scheduler is not None, "the JobMaster has not begun"
        return self._scheduler

    def begin(self, graph: ExecutionGraph, gateway: ExecutionGateway) -> None:
        """Take the job up."""
        world = self._world
        config = world.scenario.config
        storage = None if config.checkpointing is None else world.storage
        self._scheduler = JobScheduler(
            JOB_ID, graph, config, gateway, storage, world.clock, self.timers, self._runner
        )
        self._scheduler.start()

    def report(self, attempt: int, act: Callable[[JobScheduler], Any], what: str, subtask: SubtaskId) -> None:
        """A subtask says something; it comes late, in any order, and perhaps twice."""
        self.answer(attempt, act, what, subtask)
        if self._world.repeats(FaultKind.MESSAGE_REPEATED):
            self.answer(attempt, act, f"again: {what}", subtask)

    def answer(
        self,
        attempt: int,
        act: Callable[[JobScheduler], Any],
        what: str,
        subtask: SubtaskId | None = None,
    ) -> None:
        """A call is answered, once."""

        def arrive() -> None:
            scheduler = self.scheduler
            current = scheduler.attempt if subtask is None else scheduler.attempt_of(subtask)
            self._world.counts.happened(FaultKind.REPORT_OF_OLD_ATTEMPT, int(attempt < current))
            act(scheduler)

        self._world.send(Happening.REPORT, arrive, what)

    def _on_work(self) -> None:
        if self._scheduler is not None and self._scheduler.state is JobState.RUNNING:
            self._world.on_moment(Moment.WRITING)

    def _do_work(self, work: Callable[[], object]) -> None:
        try:
            work()
        except CorruptSnapshotError as error:
            msg = f"the JobMaster found damaged or missing files: {error}"
            raise AssertionError(msg) from error


def _run(callback: Callable[[], None]) -> None:
    callback()
