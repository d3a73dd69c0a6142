"""`Master`: one process of the JobMaster, with the real scheduler in it and what it needs around it.

A run may have several: one after the other because they die, or two at once because one was believed to be
dead. Writes that a dead one began may still succeed. Messages to it reach its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.runtime.execution.processes import Place
from penstock.runtime.job.execution_gateway import ExecutionGateway
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.job.scheduler_statistics import SchedulerStatistics
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.simulation.cluster.compaction_crash import CompactionCrash, StorageOfMaster
from penstock.runtime.testing.simulation.cluster.job import FIRST_JOB, SimulatedJob
from penstock.runtime.testing.simulation.cluster.links import Links, Reach
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger, SimulatedHook
from penstock.runtime.testing.simulation.cluster.process_timers import ProcessTimers
from penstock.runtime.testing.simulation.cluster.suspension import Suspension
from penstock.runtime.testing.simulation.cluster.task_supervisor import ProcessDied
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.simulated_work import SimulatedRunner
from penstock.runtime.testing.simulation.world.world import World

#: Seconds by which the processor time of a JobMaster has grown when it is read again.
_USED: Final = 0.01

#: Seconds after which a report is repeated that nobody took.
_REPEAT_DELAY: Final = 0.5


class Master:
    """Holds a scheduler and carries what others say to it.

    Args:
        job: What it runs.
        number: Which one it is, from 1.
        compaction_crash: When it dies in a compaction of its log.
        on_death: Called with it when it has died in the middle of its work.

    Attributes:
        job: What it runs.
        is_alive: Whether it has neither died nor left.
        clock: Monotonic time here may run faster or slower than the world's.
        place: Its guards kill it by this.
        hooks: The job's master hooks in this process.
        runner: Does its blocking work.
    """

    def __init__(
        self,
        world: World,
        job: SimulatedJob,
        number: int,
        compaction_crash: CompactionCrash,
        on_death: Callable[[Master], None],
    ) -> None:
        self.job = job
        self.hooks: tuple[SimulatedHook, ...] = ()
        self.is_alive = True
        self.clock = world.clocks.new()
        self._world = world
        self._storage = StorageOfMaster(world.storage, compaction_crash)
        self._on_death = on_death
        self._is_new = job.is_new and number == 1
        self.place = Place(-number, "simulated")
        self._processor_time = 0.0
        self._name = f"JobMaster {number}" if job.id == FIRST_JOB else f"JobMaster {number} of {job.id}"
        self._scheduler: JobScheduler | None = None
        self._suspension = Suspension(world)
        self.holds = self._suspension.holds
        self.timers = ProcessTimers(world, self.clock, self._suspension, self._name)
        self.runner = SimulatedRunner(
            world, self._name, _run, self._do_work, self._on_work, self._suspension.holds
        )

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
            None if job.config.checkpointing is None else self._storage,
            self.clock,
            self.timers,
            self.runner,
            known_attempt,
            open_location=world.places(self._storage),
            is_new=self._is_new,
            writer=self._name,
            submission=f"submission of {job.id}",
            compact_every=job.compact_every,
        )
        self.hooks = ledger.take_made()
        self._scheduler.start()

    def die(self, *, work_goes_on: bool) -> None:
        """Its process is gone; what it had handed to the storage may arrive there all the same."""
        self.is_alive = False
        self.timers.close()
        self._suspension.wake()
        if work_goes_on:
            self.runner.close()
        else:
            self.runner.die()

    @property
    def is_frozen(self) -> bool:
        """Whether it can't run now."""
        return self._suspension.is_frozen

    def processor_time(self) -> float:
        """Seconds that it has used; they stand still while it is frozen."""
        if not self.is_frozen:
            self._processor_time += _USED
        return self._processor_time

    def freeze(self) -> None:
        """Let nothing of it go on."""
        self._suspension.freeze()

    def wake(self) -> None:
        """Let everything of it go on."""
        if self.is_frozen:
            self._world.trace.note(f"!! {self} wakes up")
        self._suspension.wake()

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
        except ProcessDied:
            self._on_death(self)


class Masters:
    """All JobMasters of a run.

    Args:
        job: What they run.
        links: Who reaches whom.

    Attributes:
        is_abandoned: Whether none comes back.
        on_kill: Called with one that a guard kills.
        on_death: Called with one that has died in the middle of its work.
        compaction_crash: When one dies that compacts the log.
    """

    def __init__(self, world: World, job: SimulatedJob, links: Links) -> None:
        self._links = links
        self.on_kill: Callable[[Master], None] = _nobody_kills
        self.on_death: Callable[[Master], None] = _nobody_kills
        self.compaction_crash = CompactionCrash(world)
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
    def answering(self) -> Master | None:
        """Whom a client would ask, if it can answer now; `None` while it can't."""
        newest = self.newest
        return None if newest is None or newest.is_frozen else newest

    @property
    def last(self) -> Master:
        """The newest one, also when it is gone."""
        return self.newest or [master for master in self._all if master.has_begun][-1]

    def statuses(self) -> list[SchedulerStatistics]:
        """What each of them knows, or knew last."""
        return [master.scheduler.statistics() for master in self._all if master.has_begun]

    def add(self) -> Master:
        """One more."""
        number = len(self._all) + 1
        master = Master(self._world, self._job.received(), number, self.compaction_crash, self._died)
        self._all.append(master)
        return master

    def _died(self, master: Master) -> None:
        self.on_death(master)

    def report(
        self,
        process: str,
        master: Master,
        attempt: int,
        act: Callable[[JobScheduler], Any],
        what: str,
        subtask: SubtaskId,
    ) -> None:
        """A subtask says something; it comes late, in any order, and perhaps twice.

        Args:
            process: Where the subtask runs.
            master: Who had deployed it; when that one is gone, whoever has come back hears it.
            attempt: The subtask's attempt.
            act: Says it.
            what: Describes it.
            subtask: Who says it.
        """

        def arrive() -> None:
            is_there = master.is_alive and links.reach(process, str(master)) is not Reach.GONE
            hearing = master if is_there else self.newest
            if hearing is None:
                repeat()
                return
            if not hearing.holds(Happening.REPORT, arrive, what):
                hear = partial(hearing.hear, attempt, act, subtask)
                links.carry(Happening.REPORT, process, str(hearing), hear, repeat, what)

        def repeat() -> None:
            if not self.is_abandoned:
                at = self._world.clock.monotonic() + _REPEAT_DELAY
                self._world.agenda.add(Happening.REPORT, arrive, "again:", what, at=at)

        links = self._links
        self._world.send(Happening.REPORT, arrive, what)
        if self._world.repeats(FaultKind.MESSAGE_REPEATED):
            self._world.send(Happening.REPORT, arrive, "again:", what)


def _nobody_kills(master: Master) -> None:
    """Nothing is known of processes yet."""


def _run(callback: Callable[[], None]) -> None:
    callback()
