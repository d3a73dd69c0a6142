"""`ControlPlane`: the processes of a job and its JobMasters; also describes why a run is stuck.

A JobMaster that dies is replaced after a while. Its successor reads the log, and may know the number of the
last attempt. A JobMaster that is wrongly believed dead runs concurrently with its successor. Then the log
decides which of them leads, and the other leaves when it is fenced. If the successor is fenced, the cluster
starts a third JobMaster, because the first counts as dead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum

from penstock.runtime.execution.job_lifecycle import Then
from penstock.runtime.execution.master_process import MasterRunner
from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.simulation.cluster.execution import SimulatedExecution
from penstock.runtime.testing.simulation.cluster.master import Master, Masters, RestartLedger, SimulatedJob
from penstock.runtime.testing.simulation.cluster.network import Links
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.cluster.processes import ProcessTable
from penstock.runtime.testing.simulation.cluster.running_task import RunningTask
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World


class Replaced(Enum):
    """Outcome for a JobMaster that is frozen when its successor begins."""

    WAKES_EARLY = "it wakes up when its successor has begun an attempt and has deployed nothing"
    WAKES_LATE = "it wakes up when its freeze ends"
    IS_KILLED = "it is killed"


class ControlPlane:
    """Holds all processes and JobMasters; see the module's docstring.

    Attributes:
        restarts: Number of JobMasters, and the times at which attempts were deployed and stopped.
        end: The job's final state and its cause; `None` while it runs.
    """

    def __init__(self, world: World, job: SimulatedJob) -> None:
        self.job = job
        self._world = world
        self.links = Links(world)
        self.masters = Masters(world, job, self.links, self._kill_hung, self._died_compacting)
        self._table = ProcessTable(
            world, job, self.masters, self.links, lambda process: self.believe_dead(process, None)
        )
        self._executions: dict[Master, SimulatedExecution] = {}
        self.restarts = RestartLedger()
        self._replaced: list[Callable[[], None]] = []
        #: JobMasters for which the cluster has started, or will start, a successor.
        self._succeeded: set[Master] = set()
        self.end: tuple[JobState, str] | None = None

    def begin(self, known_attempt: int = 0) -> None:
        master = self.masters.add()
        self._world.trace.note(f"== {master} begins ==")
        execution = SimulatedExecution(self._world, master, self._table, self, known_attempt)
        self._executions[master] = execution
        self.restarts.masters += 1
        host = SimulatedMasterHost(self._world, master, execution, self)
        host.runner.begin(self.job)

    @property
    def processes(self) -> Mapping[SubtaskId, SimulatedProcess]:
        return self._table.by_role

    @property
    def alive(self) -> Sequence[SimulatedProcess]:
        """All living processes, including unused ones."""
        return self._table.alive

    def job_has_ended(self) -> None:
        """Note the job's end, as reported by the oldest JobMaster that knows the end."""
        self.end = next(known.end for known in self._executions.values() if known.end is not None)

    @property
    def execution(self) -> SimulatedExecution | None:
        """The execution of the newest JobMaster; `None` while there is none."""
        newest = self.masters.newest
        return None if newest is None else self._executions[newest]

    @property
    def running_checkpoints(self) -> list[int]:
        """Checkpoints of the newest JobMaster that are in progress."""
        return [] if self.execution is None else self.execution.running_checkpoints

    def crash_master(self) -> None:
        draws, newest = self._world.draws, self.masters.newest
        if newest is None or not self._takes_checkpoints:
            return
        self._world.counts.happened(FaultKind.MASTER_CRASH)
        self._end_master(newest, work_continues=draws.chance(0.5))
        self._begin_later(newest, draws.real(0.01, 0.5))

    def _died_compacting(self, master: Master) -> None:
        self._world.counts.happened(FaultKind.CRASH_IN_COMPACTION)
        was_newest = self.masters.newest is master
        self._end_master(master, work_continues=False)
        if self.end is None and was_newest:
            self._begin_later(master, self._world.draws.real(0.01, 0.5))

    def _end_master(self, master: Master, *, work_continues: bool) -> None:
        self._world.trace.note(f"!! {master} dies")
        self._world.observer.jobmaster_died()
        self._executions[master].leave(work_continues=work_continues)

    def abandon(self) -> None:
        self.masters.is_abandoned = True
        for master in self.masters.alive:
            self._executions[master].leave(work_continues=False)
        for process in self.alive:
            process.end()

    def doubt_master(self) -> None:
        """Start another JobMaster because the newest is wrongly believed to be dead."""
        newest = self.masters.newest
        if newest is None or not self._takes_checkpoints:
            return
        self._world.counts.happened(FaultKind.TWO_MASTERS)
        self._world.trace.note(f"!! {newest} is believed to be dead")
        self._begin_later(newest, 0.0)

    def freeze_master(self, seconds: float, successor_after: float | None, replaced: Replaced) -> None:
        """Freeze the newest JobMaster for `seconds`, or until the world calms down.

        Args:
            successor_after: Seconds until a successor begins; `None` for no successor.
        """
        newest = self.masters.answering
        if newest is None or not self._takes_checkpoints:
            return
        self._world.counts.happened(FaultKind.MASTER_FROZEN)
        self._world.trace.note(f"!! {newest} freezes for {seconds:g} s")
        newest.freeze()

        def wake() -> None:
            is_late = newest.is_frozen and newest.is_alive and self.masters.newest is not newest
            self._world.counts.happened(FaultKind.MASTER_WOKE_LATE, int(is_late))
            newest.wake()

        def kill() -> None:
            if replaced is Replaced.WAKES_EARLY:
                self._replaced.append(wake)
            if replaced is Replaced.IS_KILLED and newest.is_frozen and newest.is_alive:
                self._world.trace.note(f"!! {newest} is killed")
                self._executions[newest].leave(work_continues=False)

        self._later(wake, seconds, f"{newest} wakes up")
        self._world.when_calm(wake)
        if successor_after is not None:
            self._later(kill, successor_after, f"{newest} does not answer")
            self._begin_later(newest, successor_after)

    def wake_the_replaced(self) -> None:
        """Wake frozen JobMasters whose successor has begun an attempt and deployed nothing yet."""
        replaced, self._replaced = self._replaced, []
        for wake in replaced:
            wake()

    def cut_network(self, island: Collection[str], seconds: float, noticed_after: float | None) -> None:
        """Cut these processes and JobMasters off for `seconds`, or until the world calms down.

        Args:
            noticed_after: Seconds until the cluster declares them dead; `None` for never.
        """
        links = self.links
        if links.is_cut or not island:
            return
        self._world.counts.happened(FaultKind.NETWORK_CUT)
        self._world.trace.note(f"!! cut off for {seconds:g} s: {', '.join(island)}")
        links.cut(island)

        def notice() -> None:
            if links.is_cut:
                self._declare_gone(links.cut_off)

        def heal() -> None:
            if links.is_cut:
                self._world.trace.note("!! the cut is healed")
                lost = [name for name in links.cut_off if links.is_gone(name)]
                links.heal()
                self._later(
                    lambda: self._end_all(lost), self._world.draws.pick((0.0, 0.1, 5.0)), "a node ends"
                )

        if noticed_after is not None:
            self._later(notice, noticed_after, "the cluster looks for dead nodes")
        self._later(heal, seconds, "the network is mended")
        self._world.when_calm(heal)

    def believe_dead(self, process: SimulatedProcess, seconds: float | None) -> None:
        """Declare a living process dead. The cluster ends it after `seconds`; never for `None`."""
        if not process.is_alive or self.links.is_gone(process.id):
            return
        self._declare_gone([process.id])
        if seconds is not None:
            self._later(lambda: self._end_all([process.id]), seconds, "a process that counts as dead ends")

    def _declare_gone(self, island: Collection[str]) -> None:
        island = [name for name in island if not self.links.is_gone(name)]
        self._world.trace.note(f"!! declared dead: {', '.join(island)}")
        self.links.declare_gone(island)
        for process in self.alive:
            if process.id in island:
                self._world.counts.happened(FaultKind.ZOMBIE)
                process.counts_as_dead(island)
        for master in self.masters.alive:
            if str(master) in island:
                self._world.counts.happened(FaultKind.TWO_MASTERS)
                self._begin_later(master, self._world.draws.real(0.0, 0.5))

    def _kill_hung(self, master: Master) -> None:
        if master.is_alive:
            self._world.counts.happened(FaultKind.MASTER_REPLACED, int(master.is_frozen))
            self._world.trace.note(f"!! {master} is killed by a guard")
            # A JobMaster that was replaced before may still be frozen.
            was_newest = self.masters.newest is master
            self._executions[master].leave(work_continues=False)
            if self._takes_checkpoints and self.end is None and was_newest:
                self._begin_later(master, self._world.draws.real(0.01, 0.5))

    def process_ends(self, master: Master, *, is_restarted: bool) -> None:
        """End a JobMaster that leaves; optionally restart it, unless the cluster has already replaced it."""
        self._executions[master].leave(work_continues=True)
        if is_restarted and master not in self._succeeded:
            self._begin_later(master, self._world.draws.real(0.01, 0.5))

    def _end_all(self, names: Collection[str]) -> None:
        for master in self.masters.alive:
            if str(master) in names:
                self._executions[master].leave(work_continues=self._world.draws.chance(0.5))
        for process in self.alive:
            if process.id in names:
                process.end()

    @property
    def _takes_checkpoints(self) -> bool:
        return self.job.config.checkpointing is not None

    def _begin_later(self, previous: Master, delay: float) -> None:
        self._succeeded.add(previous)
        known = previous.scheduler.attempt if self._world.draws.chance(0.5) else 0

        def begin() -> None:
            if self.end is None:
                self.begin(known)

        self._later(begin, delay, "a JobMaster comes up")

    def _later(self, act: Callable[[], None], seconds: float, what: str) -> None:
        self._world.agenda.add(Happening.OPERATION, act, what, at=self._world.clock.monotonic() + seconds)


class SimulatedMasterHost:
    """The `MasterHost` of one JobMaster, which is started for one job.

    Attributes:
        runner: The decisions of its process.
    """

    def __init__(
        self, world: World, master: Master, execution: SimulatedExecution, control: ControlPlane
    ) -> None:
        self._world = world
        self._master = master
        self._execution = execution
        self._control = control
        is_restart = control.restarts.masters > 1
        self.runner: MasterRunner[SimulatedJob, SimulatedExecution] = MasterRunner(
            self, master.timers, is_restart=is_restart
        )

    def begin(self, job: SimulatedJob, *, is_restart: bool) -> SimulatedExecution:
        self._execution.begin(
            is_restart=is_restart,
            on_over=self.runner.job_over,
            on_fenced=lambda: self.runner.fenced(job.id),
        )
        return self._execution

    def accept(self, job: SimulatedJob, answer: Callable[[bool | None], None]) -> None:
        answer(False)  # no program of this run submits a job to a waiting process

    def forget(self, job_id: str, within: float, answer: Callable[[bool | None], None]) -> None:
        answer(True)

    def is_master(self, job_id: str, answer: Callable[[bool | None], None]) -> None:
        answer(self._control.end is None)

    def count_waiting(self, answer: Callable[[int | None], None]) -> None:
        answer(0)

    def offer(self, then: Then) -> None:
        then()

    def withdraw_offer(self, answer: Callable[[bool | None], None]) -> None:
        answer(True)

    def waits(self, run: SimulatedExecution) -> None:
        self.note("it waits for another job")

    def refuses(self) -> str | None:
        return None

    def residue(self) -> str | None:
        return None

    def note(self, what: str) -> None:
        self._world.trace.note(f"{self._master}: {what}")

    def leave(self) -> None:
        self._control.process_ends(self._master, is_restarted=False)

    def die(self, why: str) -> None:
        self.note(why)
        self._control.process_ends(self._master, is_restarted=True)


def describe_standstill(world: World, control: ControlPlane) -> str:
    graph = build_execution_graph(control.masters.last.scheduler.graph)
    status = control.masters.last.scheduler.statistics()
    waiting = ", ".join(f"{kind} {n}" for kind, n in world.agenda.waiting().items()) or "nothing"
    lines = [
        f"the job is {status.state.value} in attempt {status.attempt}; on the agenda: {waiting}; "
        f"checkpoints in progress: {control.running_checkpoints}"
    ]
    lines += [
        f"  checkpoint {record.checkpoint_id}: {record.status.value}, {record.acknowledged} of "
        f"{record.subtasks} acknowledged {record.detail}"
        for record in status.checkpoint_history[-3:]
    ]
    for subtask in graph.subtasks:
        process = control.processes.get(subtask.id)
        task = None if process is None else process.task
        if process is None or task is None or not process.is_alive:
            lines.append(f"  {subtask.id}: no process")
        elif task.state.is_open:
            lines.append(f"  {subtask.id}: {task.state.value}, {'; '.join(_waits(task, graph))}")
    return "\n".join(lines)


def _waits(task: RunningTask, graph: ExecutionGraph) -> Iterator[str]:
    subtask = task.subtask
    yield subtask.phase.value
    wake_at = task.wake_at
    yield "no timer" if wake_at is None else f"wakes at {wake_at:.5f} s"
    network = subtask._parts.network
    if network is not None:
        gate = network.gate.gate
        for channel in gate.channels:
            if not channel.has_ended:
                blocked = ", blocked" if channel.index in gate.blocked_channels else ""
                yield (
                    f"input {channel.index} from {channel.sender}: {channel.queued} queued, "
                    f"{channel.early} early, {channel.consumed} consumed{blocked}"
                )
        yield f"barriers: {network.gate.handler.statistics()}"
    for spec in graph.subtask(task.id).outputs:
        for out in spec.channels:
            outstanding = task.network.outstanding(out)
            if outstanding:
                yield f"waits for {outstanding} credits of {out.receiver} (channel {out.channel})"
