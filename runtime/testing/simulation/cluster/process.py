"""`SimulatedProcess`: takes the role of a subtask and runs its attempts, one after the other, until it dies.

`SubtaskRunner` handles calls, as in production. This module simulates its machine: death and freezing. A dead
process loses its memory. Messages that it has sent still arrive, and so do most of its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.heartbeat import HeartbeatLimits, MasterGuard
from penstock.runtime.execution.processes import CallFailure, Counters, Place, ProcessSpec, Stale
from penstock.runtime.execution.role import Role
from penstock.runtime.execution.subtask_process import AttemptEvents, ProcessEnds, SubtaskRunner
from penstock.runtime.job.job_state import JobState, SubtaskReport
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.testing.simulation.cluster.master import GuardedBy, Master, Masters
from penstock.runtime.testing.simulation.cluster.network import (
    COUNTS_AS_DEAD,
    KILLED,
    Links,
    Receivers,
    SimulatedFrame,
)
from penstock.runtime.testing.simulation.cluster.process_resources import ProcessTimers, Suspension
from penstock.runtime.testing.simulation.cluster.running_task import ProcessDied, RunningTask, TaskState
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

T = TypeVar("T")

#: Number of the stream of draws about the properties of processes.
_HABIT_STREAM = 4_713
#: Seconds of processor time that a process gains between two reads.
_USED = 0.01


class WarmFlaw(Enum):
    """The fault of a warm process when it is claimed."""

    NONE = "nothing"
    DEAD = "it has died"
    REFUSES = "it takes no other role"
    SILENT = "it hangs"


@dataclass(eq=False, slots=True)
class _OpenCall:
    caller: str
    answer: Callable[[Any], None]


class SimulatedProcess:
    """Runs the attempts of one subtask; see the module's docstring.

    Args:
        withdraw: Withdraws the offer of this process; returns `False` when a job has claimed it.

    Attributes:
        clock: Clock of the process; its monotonic time may run faster or slower than the world's.
        place: Identity of the process on its node, which reports its processor time.
        is_silent: Whether the process hangs, so that calls get no answer.
        answers_are_lost: Whether the process died before its last answers left.
        stops_take_time: Whether other moves may come between a stop and the end of the stopped attempt.
    """

    def __init__(
        self,
        world: World,
        pid: int,
        spec: ProcessSpec,
        masters: Masters,
        config: JobConfig,
        links: Links,
        withdraw: Callable[[SimulatedProcess], bool],
    ) -> None:
        self.id = f"process {pid}"
        self.place = Place(pid, "simulated")
        self.clock = world.clocks.new()
        self.links = links
        self.spec = spec
        self.is_alive = True
        self.is_silent = False
        self.answers_are_lost = self._dies_when_its_end_is_known = False
        self._known_end: RunningTask | None = None
        self._world = world
        self._processor_time = 0.0
        self._flaw = WarmFlaw.NONE
        self._masters = masters
        self._credits = config.advanced.credits
        self._withdraw = withdraw
        self._suspension = Suspension(world)
        self.holds = self._suspension.holds
        self._open: list[_OpenCall] = []
        self._guarded = GuardedBy(world, self.id, self._suspension, masters, links)
        self._timers = ProcessTimers(world, self.clock, self._suspension, self.id)
        self.process: SubtaskRunner[Master, Receivers] = SubtaskRunner(spec, self)
        self._dies_after_effects: int | None = None
        self._dies_after_uploads: int | None = None
        # The draws are the same for all processes of a run; most runs have neither property.
        habits = world.draws.stream(_HABIT_STREAM)
        self.stops_take_time, self._leaves_residue = habits.chance(0.2), habits.chance(0.2)
        self._look_at_lease_later()

    def __str__(self) -> str:
        return self.id if self.role is None else f"{self.id} ({self.role.subtask})"

    @property
    def role(self) -> Role | None:
        return self.process.role

    @property
    def task(self) -> RunningTask | None:
        attempt = self.process.attempt
        assert attempt is None or isinstance(attempt, RunningTask), "`new_attempt` makes no other one"
        return attempt

    @property
    def runs(self) -> bool:
        return self.is_alive and self.task is not None and self.task.state.is_open

    @property
    def may_die(self) -> bool:
        """Whether a death would matter: the process lives, and its work is not done."""
        return self.is_alive and (self.task is None or self.task.state is not TaskState.FINISHED)

    # -- its life -----------------------------------------------------------------------------------------

    def die(self, kind: FaultKind) -> None:
        if not self.is_alive:
            return
        self._world.trace.note("!!", self, "dies:", kind.value)
        self._world.counts.happened(kind)
        self._world.observer.process_died()
        self._world.counts.happened(FaultKind.CRASH_WHILE_STORED, int(bool(self._world.storing)))
        scheduler = self._masters.last.scheduler
        is_restart = scheduler.attempt > 1 and scheduler.state is not JobState.RUNNING
        self._world.counts.happened(FaultKind.CRASH_IN_RESTART, int(is_restart))
        self.end()

    @property
    def has_finished(self) -> bool:
        return self.is_alive and self.task is not None and self.task.is_finished

    def die_with_its_answers(self) -> None:
        """Die and lose the answers in flight; callers learn of its death instead."""
        self.answers_are_lost = True
        self.die(FaultKind.CRASH_AFTER_END)

    def die_when_its_end_is_known(self) -> None:
        """Die with its answers once the JobMaster knows that the task has ended; senders may not know yet."""
        self._dies_when_its_end_is_known = True
        if self._known_end is self.task:
            self.end_is_known()

    def end_is_known(self) -> None:
        self._known_end = self.task
        if self._dies_when_its_end_is_known and self.has_finished and not self._world.is_calm:
            self.die_with_its_answers()

    def end(self) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        self._dies_after_effects = self._dies_after_uploads = None
        if self.task is not None:
            self.task.die()
        open_calls, self._open = self._open, []
        for call in open_calls:
            call.answer(KILLED)
        self._timers.close()
        self._suspension.wake()

    @property
    def is_frozen(self) -> bool:
        return self._suspension.is_frozen

    def freeze(self, seconds: float) -> None:
        """Stop all its work for a while, or until the world calms down."""
        self._world.trace.note("!!", self, f"freezes for {seconds:g} s")
        self._world.counts.happened(FaultKind.SUBTASK_FROZEN)
        self._suspension.freeze()
        at = self._world.clock.monotonic() + seconds
        self._world.agenda.add(Happening.OPERATION, self._suspension.wake, self.id, "wakes up", at=at)
        self._world.when_calm(self._suspension.wake)

    def counts_as_dead(self, island: Collection[str]) -> None:
        """Declare a living process dead; the processes outside its island are notified."""
        for call in [call for call in self._open if call.caller not in island]:
            self._answered(call, COUNTS_AS_DEAD)

    def processor_time(self) -> float:
        """Seconds of processor time that it has used; constant while it hangs."""
        if not self.is_silent and not self.is_frozen:
            self._processor_time += _USED
        return self._processor_time

    def spoil(self, flaw: WarmFlaw) -> None:
        """Make this warm process unusable."""
        self._flaw = flaw
        self.is_silent = flaw is WarmFlaw.SILENT
        if flaw is WarmFlaw.DEAD:
            self.end()

    def die_after_effects(self, effects: int) -> None:
        self._dies_after_effects = effects

    def die_after_uploads(self, files: int) -> None:
        self._dies_after_uploads = files

    def before_effect(self) -> None:
        """Raise `ProcessDied` if the process is planned to die before this external effect."""
        if self._dies_after_effects is not None and not self._world.is_calm:
            self._dies_after_effects -= 1
            if self._dies_after_effects < 0:
                raise ProcessDied

    def before_upload(self, path: str) -> None:
        """Raise `ProcessDied` if the process is planned to die before this file is written."""
        if self._dies_after_uploads is not None and not self._world.is_calm:
            self._dies_after_uploads -= 1
            if self._dies_after_uploads < 0:
                raise ProcessDied
        self.before_effect()

    def runs_now(self) -> None:
        """Note that users' code of this process runs from now on."""
        self._world.before_effect, self._world.thread = self.before_effect, self.run_thread

    def run_thread(self, act: Callable[[], None], what: str) -> None:
        """Run a part of a thread that users' code has started."""
        if not self.is_alive or self.holds(Happening.WORK, lambda: self.run_thread(act, what), what):
            return
        self.runs_now()
        try:
            act()
        except ProcessDied:
            self.died()

    def died(self) -> None:
        uploads = self._dies_after_uploads
        self.die(
            FaultKind.CRASH_IN_UPLOAD if uploads is not None and uploads < 0 else FaultKind.CRASH_IN_STEP
        )

    def _look_at_lease_later(self) -> None:
        at = self._world.clocks.in_world(self.clock, self.clock.monotonic() + self.process.next_look)
        self._world.agenda.add(Happening.TIMER, self._look_at_lease, self.id, "looks at its lease", at=at)

    def _look_at_lease(self) -> None:
        if not self.is_alive or self.holds(
            Happening.TIMER, self._look_at_lease, self.id, "looks at its lease"
        ):
            return
        self.process.look_at_lease()
        if self.is_alive:
            self._look_at_lease_later()

    # -- calls --------------------------------------------------------------------------------------------

    def carry_out(
        self,
        caller: str,
        act: Callable[[SimulatedProcess, Callable[[T], None]], None],
        answer: Callable[[T | CallFailure], None],
    ) -> None:
        """Carry out a call, which fails when the process dies before it has answered."""
        if not self.is_alive:
            answer(KILLED)
            return
        call = _OpenCall(caller, answer)
        self._open.append(call)
        act(self, lambda given: self._answered(call, given))

    def _answered(self, call: _OpenCall, answer: Any) -> None:
        if call in self._open:
            self._open.remove(call)
            call.answer(answer)

    def renew(self, role: Role, master: Master, *, guards: bool) -> Counters | Stale:
        """Renew the lease for a JobMaster; with `guards`, this process guards it."""
        if self.process.role is not None and self.process.role.is_same_taking(role):
            self._guarded.master = master
        return self.process.renew(role, master.place if guards else None)

    def leave(self, role: Role, *, stays: bool, answer: Callable[[bool], None]) -> None:
        """Give the role back; if the process then ends, callers learn of its death."""

        def left(given: bool | ProcessEnds) -> None:
            if isinstance(given, ProcessEnds):
                self._world.trace.note("!!", self, "ends:", given.why)
                self.end()
            else:
                answer(given)

        self.process.leave_role(role, stays, left)

    @property
    def attempt(self) -> int:
        """The attempt that was deployed last; 0 for none."""
        return 0 if self.role is None else self.role.attempt

    # -- its machine --------------------------------------------------------------------------------------

    def new_attempt(
        self, role: Role, descriptor: TaskDescriptor, master: Master, events: AttemptEvents
    ) -> RunningTask:
        def report(sent: SubtaskReport, what: str) -> None:
            self._masters.report(self.id, master, role.attempt, sent, f"{role.subtask} {what}")

        job = master.job
        received = job.received_task(descriptor, self.before_effect)
        return RunningTask(self._world, received, self, events, report, self._credits, job.inline_limit)

    def new_guard(self, limits: HeartbeatLimits) -> MasterGuard:
        return MasterGuard(limits, self.clock, self._timers, self._guarded, self._guarded.note_silence)

    def refuses(self) -> str | None:
        """The reason to refuse a role, if `spoil` made it refuse."""
        return "an earlier job has spoiled it" if self._flaw is WarmFlaw.REFUSES else None

    def role_taken(self, role: Role, *, is_prepared: bool) -> None:
        """Do nothing: apart from its attempts, a role has no resources here."""

    def role_given_back(self) -> None:
        """Do nothing: the role's attempts are closed."""

    def residue(self) -> str | None:
        return "a thread still runs" if self._leaves_residue else None

    def note(self, what: str) -> None:
        self._world.trace.note("!!", self, what)

    def exit(self, why: str, *, is_failure: bool) -> None:
        self._world.trace.note("!!", self, "ends itself:", why)
        self._world.counts.happened(FaultKind.LEASE_OVER)
        self.end()

    def withdraw_offer(self, answer: Callable[[bool], None]) -> None:
        what = self.id, "withdraws its offer"

        def arrive() -> None:
            if self.is_alive and not self.holds(Happening.OPERATION, arrive, *what):
                answer(self._withdraw(self))

        self._world.send(Happening.OPERATION, arrive, *what)

    # -- frames -------------------------------------------------------------------------------------------

    def deliver(self, frame: SimulatedFrame) -> None:
        if self.holds(Happening.FRAME, lambda: self.deliver(frame), frame):
            return
        if not self.is_alive:
            frame.network.answer(frame, KILLED)
            return
        self.process.take_frame(
            frame.role.token,
            frame.role.attempt,
            frame.channel.spec.channel,
            frame.first,
            frame.elements,
            lambda answer: frame.network.answer(frame, answer),
        )
