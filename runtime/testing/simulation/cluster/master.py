"""`Master`: one process of the JobMaster, with the real scheduler in it and what it needs around it.

A run may have several: one after the other because they die, or two at once because one was believed to be
dead. Writes that a dead one began may still succeed. Messages to it reach its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.job.execution_gateway import ExecutionGateway
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.manual_time import ManualTimers
from penstock.runtime.testing.simulation.cluster.job import FIRST_JOB, SimulatedJob
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger, SimulatedHook
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.simulated_work import SimulatedRunner
from penstock.runtime.testing.simulation.world.world import World

#: Seconds after which a report is repeated that nobody took.
_REPEAT_DELAY: Final = 0.5


class Master:
    """Holds a scheduler and carries what others say to it.

    Args:
        job: What it runs.
        number: Which one it is, from 1.

    Attributes:
        job: What it runs.
        is_alive: Whether it has neither died nor left.
        hooks: The job's master hooks in this process.
        runner: Does its blocking work.
    """

    def __init__(self, world: World, job: SimulatedJob, number: int) -> None:
        self.job = job
        self.hooks: tuple[SimulatedHook, ...] = ()
        self.is_alive = True
        self.timers = ManualTimers(world.clock)
        self._world = world
        self._is_new = job.is_new and number == 1
        self._name = f"JobMaster {number}" if job.id == FIRST_JOB else f"JobMaster {number} of {job.id}"
        self._scheduler: JobScheduler | None = None
        self.runner = SimulatedRunner(world, self._name, _run, self._do_work, self._on_work)

    def __str__(self) -> str:
        return self._name

    @property
    def has_begun(self) -> bool:
        """Whether it has taken the job up."""
        return self._scheduler is not None

    @property
    def scheduler(self) -> JobScheduler:
        """The scheduler."""
        assert self._scheduler is not None, f"{self} has not begun"
        return self._scheduler

    def begin(self, gateway: ExecutionGateway, ledger: HookLedger, known_attempt: int) -> None:
        """Take the job up."""
        world, job = self._world, self.job
        self._scheduler = JobScheduler(
            job.id,
            job.graph,
            job.config,
            gateway,
            None if job.config.checkpointing is None else world.storage,
            world.clock,
            self.timers,
            self.runner,
            known_attempt,
            open_location=world.places(world.storage),
            is_new=self._is_new,
            writer=self._name,
        )
        self.hooks = ledger.take_made()
        self._scheduler.start()

    def die(self, *, work_goes_on: bool) -> None:
        """Its process is gone; what it had handed to the storage may arrive there all the same."""
        self.is_alive = False
        if work_goes_on:
            self.runner.close()
        else:
            self.runner.die()

    def hear(self, attempt: int, act: Callable[[JobScheduler], Any], subtask: SubtaskId | None) -> None:
        """Take what somebody says of an attempt."""
        scheduler = self.scheduler
        current = scheduler.attempt if subtask is None else scheduler.attempt_of(subtask)
        self._world.counts.happened(FaultKind.REPORT_OF_OLD_ATTEMPT, int(attempt < current))
        act(scheduler)

    def _on_work(self) -> None:
        if self._scheduler is not None and self._scheduler.state is JobState.RUNNING:
            self._world.on_moment(Moment.WRITING)

    def _do_work(self, work: Callable[[], object]) -> None:
        try:
            work()
        except CorruptSnapshotError as error:
            msg = f"{self} found damaged or missing files: {error}"
            raise AssertionError(msg) from error


class Masters:
    """All JobMasters of a run.

    Args:
        job: What they run.

    Attributes:
        is_abandoned: Whether none comes back.
    """

    def __init__(self, world: World, job: SimulatedJob) -> None:
        self._world = world
        self._job = job
        self._all: list[Master] = []
        self.is_abandoned = False

    @property
    def alive(self) -> list[Master]:
        """Those that live and have taken the job up, oldest first."""
        return [master for master in self._all if master.is_alive and master.has_begun]

    @property
    def newest(self) -> Master | None:
        """Whom a client would ask; `None` while there is none."""
        alive = self.alive
        return alive[-1] if alive else None

    @property
    def last(self) -> Master:
        """The newest one, also when it is gone."""
        return self.newest or [master for master in self._all if master.has_begun][-1]

    def add(self) -> Master:
        """One more."""
        master = Master(self._world, self._job.received(), len(self._all) + 1)
        self._all.append(master)
        return master

    def report(
        self, master: Master, attempt: int, act: Callable[[JobScheduler], Any], what: str, subtask: SubtaskId
    ) -> None:
        """A subtask says something; it comes late, in any order, and perhaps twice.

        Args:
            master: Who had deployed it; when that one is gone, whoever has come back hears it.
            attempt: The subtask's attempt.
            act: Says it.
            what: Describes it.
            subtask: Who says it.
        """

        def arrive() -> None:
            hearing = master if master.is_alive else self.newest
            if hearing is None and self.is_abandoned:
                return
            if hearing is None:
                at = self._world.clock.monotonic() + _REPEAT_DELAY
                self._world.agenda.add(Happening.REPORT, arrive, "again:", what, at=at)
            else:
                hearing.hear(attempt, act, subtask)

        self._world.send(Happening.REPORT, arrive, what)
        if self._world.repeats(FaultKind.MESSAGE_REPEATED):
            self._world.send(Happening.REPORT, arrive, "again:", what)


def _run(callback: Callable[[], None]) -> None:
    callback()
