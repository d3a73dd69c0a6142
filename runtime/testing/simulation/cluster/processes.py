"""The processes of a simulated job, and the calls of its JobMasters.

Every JobMaster assigns roles to processes with its own `Fleet`; the processes are shared. Calls and answers
are delayed and reordered. Sometimes a control message or its answer is lost; then the caller learns that the
process is unreachable. A process that a JobMaster has ended stays alive until that call arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Counters,
    CurrentRole,
    Died,
    Peer,
    Place,
    ProcessId,
    ProcessSpec,
    Raised,
    Reply,
    Room,
    Stale,
    SubtaskFailed,
    SubtaskOutcome,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.testing.simulation.cluster.master import Master, Masters, SimulatedJob
from penstock.runtime.testing.simulation.cluster.network import COUNTS_AS_DEAD, KILLED, Links, Reach
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess, WarmFlaw
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World
from penstock.runtime.time.durations import as_seconds

T = TypeVar("T")

#: Number of the stream of random draws for warm processes.
_WARM_STREAM = 4_711


class ProcessTable:
    """All processes of one job, whichever of its JobMasters started them.

    Attributes:
        give_up: Called with a process that a JobMaster wants to end but can't reach.
    """

    def __init__(
        self,
        world: World,
        job: SimulatedJob,
        masters: Masters,
        links: Links,
        give_up: Callable[[SimulatedProcess], None],
    ) -> None:
        self.links = links
        self.give_up = give_up
        self._world = world
        self._job = job
        self._masters = masters
        self._all: dict[ProcessId, SimulatedProcess] = {}
        self._numbers = count(1)
        self._warm: list[SimulatedProcess] = []
        self._warm_draws = world.draws.stream(_WARM_STREAM)

    @property
    def alive(self) -> list[SimulatedProcess]:
        return [process for process in self._all.values() if process.is_alive]

    @property
    def by_role(self) -> Mapping[SubtaskId, SimulatedProcess]:
        """The living process of each subtask; among several, the process of the newest attempt."""
        found: dict[SubtaskId, SimulatedProcess] = {}
        for process in self.alive:
            role = process.role
            known = found.get(role.subtask) if role is not None else None
            if role is not None and (known is None or known.attempt <= role.attempt):
                found[role.subtask] = process
        return found

    def start(self, spec: ProcessSpec) -> SimulatedProcess:
        pid = next(self._numbers)
        process = SimulatedProcess(
            self._world, pid, spec, self._masters, self._job.config, self.links, self._withdraw
        )
        self._all[process.id] = process
        return process

    def claim(self, spec: ProcessSpec) -> SimulatedProcess | None:
        """Claim a warm process, which has given its role back or remains from an earlier job.

        A remaining process may be dead, refuse the role, or hang.
        """
        fits = next((process for process in self._warm if process.spec.fit(spec)), None)
        if fits is not None:
            self._warm.remove(fits)
            return fits
        draws = self._warm_draws
        if self._world.is_calm or not draws.chance(0.3):
            return None
        process = self.start(spec)
        flaw = draws.pick((WarmFlaw.NONE, WarmFlaw.NONE, WarmFlaw.NONE, *WarmFlaw))
        if flaw is not WarmFlaw.NONE:
            self._world.counts.happened(FaultKind.WARM_PROCESS_USELESS)
            process.spoil(flaw)
        return process

    def offer(self, process: SimulatedProcess) -> None:
        """Let jobs claim a process that has given its role back."""
        self._warm.append(process)

    def _withdraw(self, process: SimulatedProcess) -> bool:
        if process not in self._warm:
            return False
        self._warm.remove(process)
        return True

    def get(self, process: ProcessId) -> SimulatedProcess:
        return self._all[process]


class MasterProcesses:
    """One JobMaster's calls to processes: the `Processes` port. Answers are dropped after its death."""

    def __init__(self, world: World, master: Master, table: ProcessTable) -> None:
        self._world = world
        self._master = master
        self._table = table
        self._links = table.links
        self._name = str(master)
        self._refuses_next_deployment = False

    def refuse_next_deployment(self) -> None:
        """Refuse the deployment in progress, or else the next one: no node has room."""
        self._refuses_next_deployment = True

    def left_behind(self) -> Sequence[ProcessId]:
        return [process.id for process in self._table.alive]

    def start(self, spec: ProcessSpec) -> ProcessId:
        started = self._table.start(spec).id
        self._links.starts(self._name, started)
        return started

    def claim(self, spec: ProcessSpec) -> ProcessId | None:
        process = self._table.claim(spec)
        return None if process is None else process.id

    def forget(self, process: ProcessId) -> None: ...

    def offer(self, process: ProcessId) -> None:
        self._table.offer(self._table.get(process))

    def end(self, process: ProcessId, why: str = "") -> None:
        ended = self._table.get(process)
        what = self._master, "ends", ended, why

        def arrive() -> None:
            if self._links.reach(self._name, process) is Reach.OPEN:
                ended.end()
            else:
                self._table.give_up(ended)

        self._world.send(Happening.OPERATION, arrive, *what)

    def room(self) -> Room:
        return Room({}, {})

    def ask(self, process: ProcessId, reply: Reply[CurrentRole]) -> None:
        self._call(process, "what it holds", lambda p, answer: answer(p.process.ask()), reply)

    def prepare(self, process: ProcessId, reply: Reply[None]) -> None:
        def prepare(called: SimulatedProcess, answer: Callable[[None], None]) -> None:
            called.process.renew_lease()
            called.process.prepared()
            answer(None)

        self._call(process, "prepare", prepare, reply)

    def take(self, process: ProcessId, role: Role, reply: Reply[Place | Stale]) -> None:
        settings = self._master.job.config.advanced
        times = as_seconds(settings.lease_timeout), as_seconds(settings.heartbeat_timeout)
        what = self._line("take", role)
        self._call(process, what, lambda p, answer: answer(p.process.take_role(role, *times)), reply)

    def deploy(
        self, process: ProcessId, role: Role, descriptor: TaskDescriptor, reply: Reply[SubtaskFailed | None]
    ) -> None:
        def act(called: SimulatedProcess, answer: Callable[[Any], None]) -> None:
            if self._refuses_next_deployment and not self._world.is_calm:
                self._refuses_next_deployment = False
                answer(Raised(FailureCause("the cluster has no room")))
            else:
                called.process.deploy_attempt(role, descriptor, self._master, answer)

        self._call(process, self._line("deploy", role), act, reply)

    def run(
        self,
        process: ProcessId,
        role: Role,
        peers: Mapping[SubtaskId, Peer],
        reply: Reply[SubtaskOutcome],
    ) -> None:
        receivers = {s: (self._table.get(peer.process), peer.role) for s, peer in peers.items()}

        def run(called: SimulatedProcess, answer: Callable[[SubtaskOutcome], None]) -> None:
            called.process.run_attempt(role, receivers, answer)

        def ended(outcome: SubtaskOutcome | CallFailure) -> None:
            reply(outcome)
            if not isinstance(outcome, Died):
                self._table.get(process).end_is_known()

        self._call(process, self._line("run", role), run, ended, Happening.REPORT)

    def control(self, process: ProcessId, role: Role, message: SubtaskControl, reply: Reply[bool]) -> None:
        is_lost = self._world.repeats(FaultKind.MESSAGE_REPEATED)
        arrives = not is_lost or self._world.draws.chance(0.5)

        def arrive() -> None:
            called = self._table.get(process)
            if called.holds(Happening.MESSAGE, arrive, what):
                return
            answer: bool | CallFailure = Away()
            if not called.is_alive:
                answer = KILLED
            elif arrives:
                arrived = called.process.control(role, message)
                answer = Away() if is_lost else arrived
            self._answer(process, Happening.MESSAGE, self._line(role, "has received it"), reply, answer)

        what = self._line(role, "receives:", message)
        self._travel(process, Happening.MESSAGE, what, arrive, reply)

    def stop(self, process: ProcessId, role: Role, reply: Reply[None]) -> None:
        def stop(called: SimulatedProcess, answer: Callable[[None], None]) -> None:
            called.process.stop_attempt(role, lambda: answer(None))

        self._call(process, self._line("stop", role), stop, reply)

    def renew(self, process: ProcessId, role: Role, guards: bool, reply: Reply[Counters | Stale]) -> None:
        what = self._line("renew the lease of", role.subtask)

        def renew(called: SimulatedProcess, answer: Callable[[Counters | Stale], None]) -> None:
            answer(called.renew(role, self._master, guards=guards))

        self._call(process, what, renew, reply)

    def processor_times(
        self, node_id: str, places: Sequence[Place], reply: Reply[Mapping[Place, float]]
    ) -> None:
        """Read processor times; the kernel answers even if the processes hang."""

        def arrive() -> None:
            reached = [
                process
                for process in self._table.alive
                if self._links.reach(self._name, process.id) is Reach.OPEN
            ]
            times = {p.place: p.processor_time() for p in reached if p.place in places}
            self._answer("", Happening.OPERATION, "processor times", reply, times)

        self._world.send(Happening.OPERATION, arrive, f"{self._master}: processor times")

    def leave(self, process: ProcessId, role: Role, reply: Reply[bool]) -> None:
        stays = self._master.job.config.reuse_processes

        def leave(called: SimulatedProcess, answer: Callable[[bool], None]) -> None:
            called.leave(role, stays=stays, answer=answer)

        self._call(process, self._line("leave", role.subtask), leave, reply)

    def _call(
        self,
        process: ProcessId,
        what: str,
        act: Callable[[SimulatedProcess, Callable[[T], None]], None],
        reply: Reply[T],
        answers: Happening = Happening.OPERATION,
    ) -> None:
        def arrive() -> None:
            called = self._table.get(process)
            if called.is_silent or called.holds(Happening.OPERATION, arrive, what):
                return
            called.carry_out(self._name, act, answered)

        def answered(answer: T | CallFailure) -> None:
            given = self._line("answer of:", what, type(answer).__name__)
            self._answer(process, answers, given, reply, answer)

        self._travel(process, Happening.OPERATION, self._line(f"{process}:", what), arrive, reply)

    def _travel(
        self,
        process: ProcessId,
        kind: Happening,
        what: str,
        arrive: Callable[[], None],
        reply: Callable[[Died], None],
    ) -> None:
        def lose() -> None:
            self._answer(process, kind, what, reply, COUNTS_AS_DEAD)

        def reach() -> None:
            self._links.carry(kind, self._name, process, arrive, lose, what)

        self._world.send(kind, reach, what)

    def _answer(
        self,
        process: ProcessId,
        kind: Happening,
        what: str,
        reply: Callable[[Any], None],
        answer: Any,
    ) -> None:
        master, name = self._master, self._name

        def receive(received: Any) -> None:
            if master.is_alive and not master.holds(kind, lambda: receive(received), what):
                reply(received)

        def arrive() -> None:
            is_lost = process and self._table.get(process).answers_are_lost
            received = KILLED if is_lost else answer
            arrives, gone = lambda: receive(received), lambda: receive(COUNTS_AS_DEAD)
            self._links.carry(kind, name, process, arrives, gone, what)

        self._world.send(kind, arrive, self._line(f"{name}:", what))

    def _line(self, *parts: object) -> str:
        """A line for the trace; empty without a trace."""
        return " ".join(map(str, parts)) if self._world.trace.is_on else ""
