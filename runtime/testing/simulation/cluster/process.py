"""`SimulatedProcess`: takes the role of a subtask and runs its attempts, one after the other, until it dies.

The same classes as in a real process (`runtime/execution`) decide which calls it takes, when it gives up, and
how it answers deliveries. When it dies, its memory is lost. Its sent messages still arrive, and mostly its
answers do, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.deadlines import Lease
from penstock.runtime.execution.deliveries import DeliveryAnswer
from penstock.runtime.execution.heartbeat import HeartbeatLimits
from penstock.runtime.execution.master_guard import OVERDUE, MasterGuard
from penstock.runtime.execution.messages import SubtaskFailed, SubtaskOutcome, SubtaskStopped
from penstock.runtime.execution.processes import CallFailure, Counters, Died, Held, Needs, Place, Stale
from penstock.runtime.execution.role import CallFit, Role, RoleHolder
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.reports import (
    Acknowledged,
    Declined,
    EventForCoordinator,
    ReachedEndOfData,
    SubtaskReport,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.task.descriptor import SubtaskControl, TaskDescriptor
from penstock.runtime.testing.simulation.cluster.master import GuardedBy, Master, Masters
from penstock.runtime.testing.simulation.cluster.network import (
    COUNTS_AS_DEAD,
    Links,
    Receiver,
    SimulatedFrame,
)
from penstock.runtime.testing.simulation.cluster.process_timers import ProcessTimers, Suspension
from penstock.runtime.testing.simulation.cluster.running_task import ProcessDied, RunningTask, TaskState
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World
from penstock.runtime.time.durations import as_seconds

_GONE = Died("killed by the simulation")
#: Seconds by which the processor time of a process has grown when it is read again.
_USED = 0.01


class WarmFlaw(Enum):
    """Faults of a warm process when it is claimed."""

    NONE = "nothing"
    DEAD = "it has died"
    REFUSES = "it takes no other role"
    SILENT = "it hangs"


class SimulatedProcess:
    """Runs the attempts of one subtask; see the module's text.

    Args:
        pid: Its number.
        needs: What it was started with.
        masters: Take reports.
        config: Of the job that it was started for.
        links: Whom it reaches.

    Attributes:
        id: Names it.
        clock: Monotonic time here may run faster or slower than the world's.
        links: Whom it reaches.
        place: The node answers for its processor time by this.
        needs: What it was started with.
        is_alive: Whether the process lives.
        is_silent: Whether it hangs: it takes no call.
        answers_are_lost: Whether it has died before its last answers have left.
        task: The newest attempt that was deployed.
    """

    def __init__(
        self,
        world: World,
        pid: int,
        needs: Needs,
        masters: Masters,
        config: JobConfig,
        links: Links,
    ) -> None:
        self.id = f"process {pid}"
        self.place = Place(pid, "simulated")
        self.clock = world.clocks.new()
        self.links = links
        self.needs = needs
        self.is_alive = True
        self.is_silent = False
        self.answers_are_lost = self._dies_when_its_end_is_known = False
        self.task: RunningTask | None = None
        self._known_end: RunningTask | None = None
        self._world = world
        self._processor_time = 0.0
        self._refuses = False
        self._masters = masters
        advanced = config.advanced
        self._credits = advanced.credits
        self._holder = RoleHolder()
        self._lease = Lease(as_seconds(advanced.lease_timeout), self.clock.monotonic())
        self._suspension = Suspension(world)
        self.holds = self._suspension.holds
        self._runs_for = ""
        self._guarded = GuardedBy(world, self.id, self._suspension, masters, links)
        limits = HeartbeatLimits.of(
            as_seconds(advanced.heartbeat_timeout), OVERDUE * as_seconds(advanced.lease_timeout)
        )
        timers = ProcessTimers(world, self.clock, self._suspension, self.id)
        self._timers = timers
        self._guard = MasterGuard(limits, self.clock, timers, self._guarded, self._guarded.note_silence)
        self._on_run_ended: Callable[[SubtaskOutcome | CallFailure], None] | None = None
        self._dies_after_effects: int | None = None
        self._dies_after_uploads: int | None = None
        self._look_at_lease_later()

    def __str__(self) -> str:
        return self.id if self.role is None else f"{self.id} ({self.role.subtask})"

    @property
    def role(self) -> Role | None:
        """What it holds."""
        return self._holder.role

    @property
    def runs(self) -> bool:
        """Whether it lives and something that is not over runs in it."""
        return self.is_alive and self.task is not None and self.task.state.is_open

    @property
    def may_die(self) -> bool:
        """Whether somebody would miss it: it lives, and its work is not done."""
        return self.is_alive and (self.task is None or self.task.state is not TaskState.FINISHED)

    # -- its life -----------------------------------------------------------------------------------------

    def die(self, kind: FaultKind) -> None:
        """Lose everything."""
        if not self.is_alive:
            return
        self._world.trace.note("!!", self, "dies:", kind.value)
        self._world.counts.happened(kind)
        self._world.valves.somebody_dies()
        self._world.counts.happened(FaultKind.CRASH_WHILE_STORED, int(bool(self._world.storing)))
        scheduler = self._masters.last.scheduler
        is_restart = scheduler.attempt > 1 and scheduler.state is not JobState.RUNNING
        self._world.counts.happened(FaultKind.CRASH_IN_RESTART, int(is_restart))
        self.end()

    @property
    def has_finished(self) -> bool:
        """Whether it lives, and its subtask has done all its work and left."""
        return self.is_alive and self.task is not None and self.task.is_finished

    def die_with_its_answers(self) -> None:
        """Lose everything, also the answers on their way: whoever has called hears of its death instead."""
        self.answers_are_lost = True
        self.die(FaultKind.CRASH_AFTER_END)

    def die_when_its_end_is_known(self) -> None:
        """Do so when the JobMaster has heard of the end; the senders may not know it yet."""
        self._dies_when_its_end_is_known = True
        if self._known_end is self.task:
            self.end_is_known()

    def end_is_known(self) -> None:
        """The JobMaster has heard how the subtask has ended."""
        self._known_end = self.task
        if self._dies_when_its_end_is_known and self.has_finished and not self._world.is_calm:
            self.die_with_its_answers()

    def end(self) -> None:
        """It is gone, whatever the reason."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._dies_after_effects = self._dies_after_uploads = None
        if self.task is not None:
            self.task.die()
        self._run_has_ended(_GONE)
        self._guard.end()
        self._timers.close()
        self._suspension.wake()

    @property
    def is_frozen(self) -> bool:
        """Whether it can't run now."""
        return self._suspension.is_frozen

    def freeze(self, seconds: float) -> None:
        """Let nothing of it go on for a while, or until the world calms down."""
        self._world.trace.note("!!", self, f"freezes for {seconds:g} s")
        self._world.counts.happened(FaultKind.SUBTASK_FROZEN)
        self._suspension.freeze()
        at = self._world.clock.monotonic() + seconds
        self._world.agenda.add(Happening.OPERATION, self._suspension.wake, self.id, "wakes up", at=at)
        self._world.when_calm(self._suspension.wake)

    def counts_as_dead(self, island: Collection[str]) -> None:
        """The cluster declares it dead, but it lives on; whoever is not on its island hears so."""
        if self._runs_for not in island:
            self._run_has_ended(COUNTS_AS_DEAD)

    def processor_time(self) -> float:
        """Seconds that it has used; they stand still while it hangs."""
        if not self.is_silent and not self.is_frozen:
            self._processor_time += _USED
        return self._processor_time

    def spoil(self, flaw: WarmFlaw) -> None:
        """Be a warm process that nobody can use."""
        self._refuses = flaw is WarmFlaw.REFUSES
        self.is_silent = flaw is WarmFlaw.SILENT
        if flaw is WarmFlaw.DEAD:
            self.end()

    def die_after_effects(self, effects: int) -> None:
        """Die in front of the effect after this many."""
        self._dies_after_effects = effects

    def die_after_uploads(self, files: int) -> None:
        """Die when this many more files were written."""
        self._dies_after_uploads = files

    def before_effect(self) -> None:
        """Something is about to happen outside of the process.

        Raises:
            ProcessDied: The process dies first.
        """
        if self._dies_after_effects is not None and not self._world.is_calm:
            self._dies_after_effects -= 1
            if self._dies_after_effects < 0:
                raise ProcessDied

    def before_upload(self) -> None:
        """A file is about to be written.

        Raises:
            ProcessDied: The process dies first.
        """
        if self._dies_after_uploads is not None and not self._world.is_calm:
            self._dies_after_uploads -= 1
            if self._dies_after_uploads < 0:
                raise ProcessDied
        self.before_effect()

    def died(self) -> None:
        """It has died in the middle of something."""
        uploads = self._dies_after_uploads
        self.die(
            FaultKind.CRASH_IN_UPLOAD if uploads is not None and uploads < 0 else FaultKind.CRASH_IN_STEP
        )

    def _look_at_lease_later(self) -> None:
        at = self._world.clocks.in_world(self.clock, self.clock.monotonic() + self._lease.interval)
        self._world.agenda.add(Happening.TIMER, self._look_at_lease, self.id, "looks at its lease", at=at)

    def _look_at_lease(self) -> None:
        if not self.is_alive or self.holds(
            Happening.TIMER, self._look_at_lease, self.id, "looks at its lease"
        ):
            return
        if self._lease.is_over(self.clock.monotonic()):
            self._world.trace.note("!!", self, "has heard from no JobMaster: it ends itself")
            self._world.counts.happened(FaultKind.LEASE_OVER)
            self.end()
        else:
            self._look_at_lease_later()

    # -- calls of the JobMaster ---------------------------------------------------------------------------

    def ask(self) -> Held:
        """What it holds."""
        if self._holder.role is None:
            self._lease.renew(self.clock.monotonic())
        return Held(self._holder.role, self.needs, self.place)

    def prepare(self) -> None:
        """Wait for a role."""
        self._lease.renew(self.clock.monotonic())

    def take(self, role: Role) -> Place | Stale:
        """Take a role."""
        if self._refuses or not self._holder.take(role):
            return Stale()
        self._lease.renew(self.clock.monotonic())
        return self.place

    def deploy(self, role: Role, descriptor: TaskDescriptor, master: Master) -> SubtaskFailed | Died | None:
        """Build the subtask of a new attempt; what went wrong, if anything did."""
        self._renew(role)
        if not self._holder.deploy(role):
            return SubtaskFailed(f"{role} is past", "")
        self._stop_task()
        self._holder.begin(role)
        supervisor = AttemptSupervisor(self, self._masters, master, role)
        inline_limit = master.job.inline_limit
        self.task = RunningTask(self._world, descriptor, self._credits, supervisor, inline_limit)
        try:
            return self.task.build()
        except ProcessDied:
            self.died()
            return _GONE

    def run(
        self,
        role: Role,
        receivers: Mapping[SubtaskId, tuple[Receiver, Role]],
        on_end: Callable[[SubtaskOutcome | CallFailure], None],
        caller: str,
    ) -> None:
        """Let a deployed attempt run; told once when it has ended."""
        task = self._current(role)
        if task is None or task.state is not TaskState.DEPLOYED:
            on_end(SubtaskStopped())
            return
        self._on_run_ended, self._runs_for = on_end, caller
        task.start(receivers)

    def stop(self, role: Role) -> None:
        """Stop this attempt, or an older one that still runs."""
        self._renew(role)
        if self._holder.stop(role):
            self._stop_task()

    def control(self, role: Role, message: SubtaskControl) -> bool:
        """Take a message of the JobMaster; whether it arrived."""
        self._renew(role)
        task = self._current(role)
        if task is None or not task.state.is_open:
            return False
        task.control(message)
        return True

    def renew(self, role: Role, master: Master, *, guards: bool) -> Counters | Stale:
        """A JobMaster lives.

        Args:
            guards: Whether this process guards the JobMaster.
        """
        if not self._holder.holds(role):
            return Stale()
        self._lease.renew(self.clock.monotonic())
        self._guarded.master = master
        self._guard.renewed(master.place if guards else None)
        return Counters(self.attempt, None)

    def leave(self, role: Role) -> bool:
        """Give the role back; whether the process waits for another role now."""
        if not self._holder.holds(role):
            return False
        self._stop_task()
        self._guard.end()
        self._holder.give_back(role)
        self.task = None
        self._lease.renew(self.clock.monotonic())
        return True

    @property
    def attempt(self) -> int:
        """The attempt that was deployed last; 0 for none."""
        return 0 if self._holder.role is None else self._holder.role.attempt

    def _renew(self, role: Role) -> None:
        if self._holder.holds(role):
            self._lease.renew(self.clock.monotonic())

    def _current(self, role: Role) -> RunningTask | None:
        return self.task if self._holder.fit(role.token, role.attempt) is CallFit.CURRENT else None

    def _stop_task(self) -> None:
        if self.task is not None and self.task.state.is_open:
            self.task.stop()
            self._run_has_ended(SubtaskStopped())

    def task_ended(self, outcome: SubtaskOutcome) -> None:
        """The task has finished, or failed."""
        self._run_has_ended(outcome)

    def _run_has_ended(self, outcome: SubtaskOutcome | CallFailure) -> None:
        on_end, self._on_run_ended = self._on_run_ended, None
        if on_end is not None:
            on_end(outcome)

    # -- frames -------------------------------------------------------------------------------------------

    def deliver(self, frame: SimulatedFrame) -> None:
        """Take a frame."""
        if self.holds(Happening.FRAME, lambda: self.deliver(frame), frame):
            return
        fit = self._holder.fit(frame.role.token, frame.role.attempt)
        if not self.is_alive:
            frame.network.answer(frame, _GONE)
        elif fit is CallFit.STALE:
            frame.network.answer(frame, DeliveryAnswer.STALE)
        elif fit is CallFit.NOT_YET or self.task is None:
            frame.network.answer(frame, DeliveryAnswer.NOT_YET)
        else:
            self.task.deliver(frame)


class AttemptSupervisor:
    """What one attempt of a subtask says, carried to the JobMaster with its role.

    Args:
        process: Where it runs.
        masters: Take reports.
        master: The one that has deployed it.
    """

    def __init__(self, process: SimulatedProcess, masters: Masters, master: Master, role: Role) -> None:
        self._process = process
        self._masters = masters
        self._master = master
        self._role = role
        self.process = process.id
        self.clock = process.clock
        self.links = process.links
        self.holds = process.holds
        self.before_effect = process.before_effect
        self.before_upload = process.before_upload
        self.died = process.died

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """Report that a part of a checkpoint is durable."""
        report = Acknowledged(self._role.subtask, checkpoint_id, snapshot, metrics)
        self._report(report, f"acknowledges checkpoint {checkpoint_id}")

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """Report that a checkpoint can't be taken."""
        report = Declined(self._role.subtask, checkpoint_id, reason, detail)
        self._report(report, f"declines checkpoint {checkpoint_id}: {reason.value} {detail}")

    def end_of_data(self) -> None:
        """Report the end of all inputs."""
        self._report(ReachedEndOfData(self._role.subtask), "has reached the end of its data")

    def operator_event(self, operator_id: str, event: Any) -> None:
        """Hand an event on to the operator's coordinator."""
        self._report(EventForCoordinator(self._role.subtask, operator_id, event), f"sends {event}")

    def ended(self, outcome: SubtaskOutcome) -> None:
        """The call that was open while it ran is answered."""
        self._process.task_ended(outcome)

    def _report(self, report: SubtaskReport, what: str) -> None:
        role = self._role
        self._masters.report(
            self.process,
            self._master,
            role.attempt,
            lambda scheduler: scheduler.report(role.attempt, report),
            f"{role.subtask} {what}",
            role.subtask,
        )
