"""A simulated job, its JobMaster process with the real scheduler (`Master`), and the calls of its guards.

A job may have several JobMasters: one after another because they die, or two at once because one was
declared dead by mistake. Writes of a dead JobMaster may still succeed. Messages to it reach its successor.

A compaction of the decision log writes its record, then the hint (`log/compaction`), and then deletes the
earlier slots in several calls. The JobMaster may die before each call after the record, and in the middle of
a call that deletes several files. Its earlier calls keep their effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import Died, Place, Reply
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.job.context import ExecutionGateway
from penstock.runtime.job.job_state import JobState, SchedulerStatistics, SubtaskReport
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.cluster.network import COUNTS_AS_DEAD, Links, Reach
from penstock.runtime.testing.simulation.cluster.process_resources import (
    ProcessTimers,
    SimulatedRunner,
    Suspension,
    WatchedStorage,
)
from penstock.runtime.testing.simulation.cluster.running_task import ProcessDied
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment
from penstock.runtime.testing.simulation.world.world import World

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
    """A submitted job.

    Attributes:
        code: Copies users' objects for each process; `None` shares them.
        is_new: Whether its first JobMaster treats the job as newly submitted.
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
        return self if self.code is None else replace(self, graph=self.code.graph_for_master())

    def received_task(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """The task as a process receives it; calls `effect` before each external effect of users' code."""
        return task if self.code is None else self.code.task_for_process(task, effect)


@dataclass(slots=True)
class RestartLedger:
    """The times of a job's attempts, in the world's time.

    The times come from the scheduler's calls, independently of the job's own counters. So tests can check
    that the job restarted no more often than its restart strategy allows.

    Attributes:
        deployed: Time of each deployment, of the job or of a region, including the first one.
        stopped: For each deployment, the time at which the previous attempt was stopped; the first
            deployment has its own time here.
        last_stop: Time of the last stop of an attempt, whether or not another attempt followed.
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


#: Suffix of the hint's path.
_HINT = "/log/compaction"


class CompactionCrash:
    """The planned death of a JobMaster that compacts the log; one for all JobMasters of a job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: int | None = None

    def plan(self, calls: int) -> None:
        """Kill a JobMaster that compacts the log, after this number of storage calls of compactions."""
        self._calls = calls

    def comes_now(self) -> bool:
        if self._calls is None or self._world.is_calm:
            return False
        self._calls -= 1
        if self._calls >= 0:
            return False
        self._calls = None
        return True


class StorageOfMaster(WatchedStorage):
    """The checkpoint storage as a JobMaster sees it; see the module's docstring."""

    def __init__(self, storage: SnapshotStorage, crash: CompactionCrash) -> None:
        super().__init__(storage, self._die_before_hint)
        self._crash = crash

    def _die_before_hint(self, path: str) -> None:
        if path.endswith(_HINT) and self._crash.comes_now():
            raise ProcessDied

    def delete(self, paths: Iterable[str]) -> None:
        deleted = list(paths)
        if any("/log/" in path for path in deleted) and self._crash.comes_now():
            super().delete(deleted[: len(deleted) // 2])
            raise ProcessDied
        super().delete(deleted)


#: Seconds of processor time that a JobMaster uses between two reads.
_USED: Final = 0.01

#: Seconds after which an unanswered report is repeated.
_REPEAT_DELAY: Final = 0.5


class Master:
    """Holds a scheduler and delivers messages to it.

    Args:
        number: Sequence number of the JobMaster, counted from 1.
        on_death: Called with the JobMaster that has died in the middle of its work.

    Attributes:
        graph: The job at its current parallelism, as this JobMaster knows it.
        is_alive: Whether the JobMaster has neither died nor left.
        clock: The JobMaster's clock; monotonic time may run faster or slower than the world's.
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
        self.graph = CurrentGraph(job.graph)
        self.is_alive = True
        self.clock = world.clocks.new()
        self._world = world
        self._storage = StorageOfMaster(world.storage, compaction_crash)
        self._on_death = on_death
        self.place = Place(-number, "simulated")
        self._processor_time = 0.0
        self._name = f"JobMaster {number}" if job.id == FIRST_JOB else f"JobMaster {number} of {job.id}"
        self._scheduler: JobScheduler | None = None
        self._suspension = Suspension(world)
        self.holds = self._suspension.holds
        self.timers = ProcessTimers(world, self.clock, self._suspension, self._name)
        self.runner = SimulatedRunner(
            world, self._name, self._run, self._do_work, self._on_work, self._suspension.holds
        )

    def __str__(self) -> str:
        return self._name

    @property
    def has_begun(self) -> bool:
        return self._scheduler is not None

    @property
    def scheduler(self) -> JobScheduler:
        assert self._scheduler is not None, f"{self} has not begun"
        return self._scheduler

    def begin(self, gateway: ExecutionGateway, known_attempt: int, *, is_restart: bool) -> None:
        world, job = self._world, self.job
        self._scheduler = JobScheduler(
            job.id,
            self.graph,
            job.config,
            gateway,
            None if job.config.checkpointing is None else self._storage,
            self.clock,
            self.timers,
            self.runner,
            known_attempt,
            open_location=world.locations(self._storage),
            is_new=job.is_new and not is_restart,
            writer=self._name,
            submission=f"submission of {job.id}",
            compact_every=job.compact_every,
        )
        world.observer.jobmaster_begun(self)
        self._scheduler.start()

    def die(self, *, work_continues: bool) -> None:
        """End the process; with `work_continues`, its writes in progress still reach the storage."""
        self.is_alive = False
        self.timers.close()
        self._suspension.wake()
        if work_continues:
            self.runner.close()
        else:
            self.runner.die()

    @property
    def is_frozen(self) -> bool:
        return self._suspension.is_frozen

    def processor_time(self) -> float:
        """Used processor time in seconds; constant while the JobMaster is frozen."""
        if not self.is_frozen:
            self._processor_time += _USED
        return self._processor_time

    def freeze(self) -> None:
        self._suspension.freeze()

    def wake(self) -> None:
        if self.is_frozen:
            self._world.trace.note(f"!! {self} wakes up")
        self._suspension.wake()

    def receive(self, attempt: int, report: SubtaskReport) -> None:
        is_old = attempt < self.scheduler.attempt_of(report.subtask)
        self._world.counts.happened(FaultKind.REPORT_OF_OLD_ATTEMPT, int(is_old))
        self.scheduler.report(attempt, report)

    def _on_work(self) -> None:
        if self._scheduler is not None and self._scheduler.state is JobState.RUNNING:
            self._world.on_moment(Moment.WRITING)

    def _run(self, callback: Callable[[], None]) -> None:
        self._world.outside_processes()
        callback()

    def _do_work(self, work: Callable[[], object]) -> None:
        self._world.outside_processes()
        try:
            work()
        except ProcessDied:
            self._on_death(self)


class Masters:
    """All JobMasters of a job.

    Args:
        on_kill: Called with a JobMaster that its guard kills.
        on_death: Called with a JobMaster that has died in the middle of its work.

    Attributes:
        is_abandoned: Whether the run was abandoned; reports without a receiver are then dropped.
    """

    def __init__(
        self,
        world: World,
        job: SimulatedJob,
        links: Links,
        on_kill: Callable[[Master], None],
        on_death: Callable[[Master], None],
    ) -> None:
        self._links = links
        self.on_kill = on_kill
        self._on_death = on_death
        self.compaction_crash = CompactionCrash(world)
        self._world = world
        self._job = job
        self._all: list[Master] = []
        self.is_abandoned = False

    @property
    def alive(self) -> list[Master]:
        return [master for master in self._all if master.is_alive and master.has_begun]

    @property
    def newest(self) -> Master | None:
        """The JobMaster that a client would call; `None` while there is none."""
        alive = self.alive
        return alive[-1] if alive else None

    @property
    def answering(self) -> Master | None:
        """The JobMaster that a client would call, if it can answer now."""
        newest = self.newest
        return None if newest is None or newest.is_frozen else newest

    @property
    def last(self) -> Master:
        """The newest JobMaster, even after its death."""
        return self.newest or [master for master in self._all if master.has_begun][-1]

    def statuses(self) -> list[SchedulerStatistics]:
        return [master.scheduler.statistics() for master in self._all if master.has_begun]

    def add(self) -> Master:
        number = len(self._all) + 1
        master = Master(self._world, self._job.received(), number, self.compaction_crash, self._on_death)
        self._all.append(master)
        return master

    def report(self, process: str, master: Master, attempt: int, report: SubtaskReport, what: str) -> None:
        """Deliver a subtask's report, which may arrive late, out of order, and twice.

        Args:
            process: The process of the subtask.
            master: The JobMaster that deployed it; after its death the successor gets the report.
        """

        def arrive() -> None:
            is_there = master.is_alive and links.reach(process, str(master)) is not Reach.GONE
            receiver = master if is_there else self.newest
            if receiver is None:
                repeat()
                return
            if not receiver.holds(Happening.REPORT, arrive, what):
                receive = partial(receiver.receive, attempt, report)
                links.carry(Happening.REPORT, process, str(receiver), receive, repeat, what)

        def repeat() -> None:
            if not self.is_abandoned:
                at = self._world.clock.monotonic() + _REPEAT_DELAY
                self._world.agenda.add(Happening.REPORT, arrive, "again:", what, at=at)

        links = self._links
        self._world.send(Happening.REPORT, arrive, what)
        if self._world.repeats(FaultKind.MESSAGE_REPEATED):
            self._world.send(Happening.REPORT, arrive, "again:", what)


_DIED = Died("the JobMaster has died")


class GuardedBy:
    """The `GuardedMaster` of one process; `master` is the JobMaster that last renewed the process's lease."""

    def __init__(
        self, world: World, process: str, suspension: Suspension, masters: Masters, links: Links
    ) -> None:
        self.master: Master | None = None
        self._world = world
        self._process = process
        self._suspension = suspension
        self._masters = masters
        self._links = links

    def ask_master(self, reply: Reply[None]) -> None:
        """Ping the JobMaster; a frozen JobMaster answers when it wakes up."""

        def ping(master: Master) -> None:
            if not master.holds(Happening.OPERATION, lambda: ping(master), "gets a ping"):
                self._answer(master, reply, None if master.is_alive else _DIED)

        self._travel("pings its JobMaster", ping, reply)

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        """Read the processor time; the kernel answers even if the JobMaster hangs."""

        def read(master: Master) -> None:
            self._answer(master, reply, master.processor_time() if master.is_alive else _DIED)

        self._travel("reads a processor time", read, reply)

    def end_master(self, place: Place, why: str) -> None:
        def kill(master: Master) -> None:
            if master.place == place:
                self._masters.on_kill(master)

        self._travel(f"kills its JobMaster: {why}", kill, lambda answer: None)

    def note_silence(self, place: Place, silence: Silence) -> None:
        self._world.trace.note(f"{self._process}: {self.master} is silent: {silence}")

    def _travel(self, what: str, arrive: Callable[[Master], None], reply: Callable[[Any], None]) -> None:
        master = self.master
        if master is None:
            return

        def reach() -> None:
            self._links.carry(
                Happening.OPERATION,
                self._process,
                str(master),
                lambda: arrive(master),
                lambda: self._answer(master, reply, COUNTS_AS_DEAD),
                what,
            )

        self._world.send(Happening.OPERATION, reach, self._process, what)

    def _answer(self, master: Master, reply: Callable[[Any], None], answer: Any) -> None:
        def receive() -> None:
            if not self._suspension.holds(Happening.OPERATION, receive, "an answer of its JobMaster"):
                reply(answer)

        def arrive() -> None:
            name = str(master)
            self._links.carry(Happening.OPERATION, self._process, name, receive, receive, "an answer")

        self._world.send(Happening.OPERATION, arrive, f"{self._process}: an answer of {master}")
