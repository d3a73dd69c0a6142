"""`ControlPlane`: the processes of a run, its JobMasters, and how one of these follows another.

A JobMaster that dies is replaced after a while. The new one knows what the log holds, and perhaps the number
of the last attempt. A JobMaster that is only believed to be dead gets a second one beside it. Then the log
decides which of them is in charge, and the other one leaves when it is fenced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.simulation.cluster.execution import SimulatedExecution
from penstock.runtime.testing.simulation.cluster.job import SimulatedJob
from penstock.runtime.testing.simulation.cluster.master import Master, Masters
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.cluster.processes import ProcessTable
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World


class ControlPlane:
    """Has all processes and JobMasters; see the module's text.

    Args:
        job: What they run.
        ledger: Knows what the job's master hooks do.

    Attributes:
        job: What they run.
        masters: All JobMasters.
    """

    def __init__(self, world: World, job: SimulatedJob, ledger: HookLedger) -> None:
        self.job = job
        self._world = world
        self._ledger = ledger
        self.masters = Masters(world, job)
        self._table = ProcessTable(world, job, self.masters)
        self._executions: dict[Master, SimulatedExecution] = {}
        self._timers: dict[Master, float] = {}

    def begin(self, known_attempt: int = 0) -> None:
        """Start a JobMaster."""
        master = self.masters.add()
        self._world.trace.note(f"== {master} begins ==")
        self._executions[master] = execution = SimulatedExecution(
            self._world, master, self._table, self._ledger
        )

        def take_up() -> None:
            if self.end is None:
                master.begin(execution, self._ledger, known_attempt)
                execution.watch()

        if self._table.alive:
            execution.adopt(take_up)
        else:
            take_up()

    @property
    def processes(self) -> Mapping[SubtaskId, SimulatedProcess]:
        """The processes that hold a role, by subtask."""
        return self._table.by_role

    @property
    def alive(self) -> Sequence[SimulatedProcess]:
        """All processes that live, also those that nobody uses any more."""
        return self._table.alive

    @property
    def end(self) -> tuple[JobState, str] | None:
        """How the job ended, and why; `None` while it lives."""
        for execution in self._executions.values():
            if execution.end is not None:
                return execution.end
        return None

    @property
    def execution(self) -> SimulatedExecution | None:
        """What the newest JobMaster uses; `None` while there is none."""
        newest = self.masters.newest
        return None if newest is None else self._executions[newest]

    @property
    def running_checkpoints(self) -> list[int]:
        """Checkpoints that the newest JobMaster has triggered and that have not ended."""
        return [] if self.execution is None else self.execution.running_checkpoints

    def crash_master(self) -> None:
        """The newest JobMaster dies, and comes back after a while."""
        draws, newest = self._world.draws, self.masters.newest
        if newest is None or not self._takes_checkpoints:
            return
        self._world.counts.happened(FaultKind.MASTER_CRASH)
        self._world.trace.note(f"!! {newest} dies")
        self._world.valves.somebody_dies()
        self._world.valves.master_is_gone()
        self._executions[newest].leave(work_goes_on=draws.chance(0.5))
        self._begin_later(newest, draws.real(0.01, 0.5))

    def abandon(self) -> None:
        """All JobMasters and processes are gone for good."""
        self.masters.is_abandoned = True
        for master in self.masters.alive:
            self._executions[master].leave(work_goes_on=False)
        for process in self.alive:
            process.end()

    def doubt_master(self) -> None:
        """The newest JobMaster is believed to be dead, and another one begins; both live."""
        newest = self.masters.newest
        if newest is None or not self._takes_checkpoints:
            return
        self._world.counts.happened(FaultKind.TWO_MASTERS)
        self._world.trace.note(f"!! {newest} is believed to be dead")
        self._begin_later(newest, 0.0)

    def schedule_timers(self) -> None:
        """Put the next timer of each JobMaster on the agenda, unless it stands there."""
        for master in self._executions:
            if not master.is_alive:
                continue
            due = master.timers.next_due
            known = self._timers.get(master)
            if due is not None and (known is None or due < known):
                self._timers[master] = due
                self._schedule(master, due)

    @property
    def _takes_checkpoints(self) -> bool:
        return self.job.config.checkpointing is not None

    def _begin_later(self, previous: Master, delay: float) -> None:
        known = previous.scheduler.attempt if self._world.draws.chance(0.5) else 0

        def begin() -> None:
            if self.end is None:
                self.begin(known)

        at = self._world.clock.monotonic() + delay
        self._world.agenda.add(Happening.OPERATION, begin, "a JobMaster comes up", at=at)

    def _schedule(self, master: Master, due: float) -> None:
        def fire() -> None:
            if self._timers.get(master) == due:
                del self._timers[master]
            next_due = master.timers.next_due
            if master.is_alive and next_due is not None and next_due <= self._world.clock.monotonic():
                master.timers.fire_next()

        self._world.agenda.add(Happening.TIMER, fire, f"{master}: a timer fires", at=due)
