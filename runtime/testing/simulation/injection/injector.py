"""`FaultInjector`: makes the planned faults happen when their moment has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.master_hook import HookLedger
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.injection.plan import Plan
from penstock.runtime.testing.simulation.injection.user import User
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault
from penstock.runtime.testing.simulation.world.world import World


class FaultInjector:
    """Watches moments and injects what was planned for them.

    A fault that can't happen when it is due (nothing runs that could crash) is left out and not counted.
    Those that wait for something, such as the next write, count when they strike.

    Args:
        control: Processes and JobMasters.
        ledger: Lets master hooks fail.
        plan: What is injected.
    """

    def __init__(self, world: World, control: ControlPlane, ledger: HookLedger, plan: Plan) -> None:
        self._world = world
        self._control = control
        self._user = User(world, control, plan)
        self._plan = plan
        self._occurred: Counter[Moment] = Counter()
        self._waiting = [fault for fault in plan.faults if fault.moment is not Moment.MOVE]
        self._due = [(fault.occurrence, fault) for fault in plan.faults if fault.moment is Moment.MOVE]
        self._inject: dict[FaultKind, Callable[[], None]] = {
            FaultKind.CRASH: self._crash,
            FaultKind.CRASH_IN_STEP: self._crash_in_step,
            FaultKind.CRASH_IN_UPLOAD: self._crash_in_upload,
            FaultKind.USER_ERROR: lambda: world.fail_user_code(world.draws.below(10)),
            FaultKind.DEPLOYMENT_FAILED: self._refuse_deployment,
            FaultKind.MASTER_CRASH: lambda: self._control.crash_master(),
            FaultKind.TWO_MASTERS: lambda: self._control.doubt_master(),
            FaultKind.WRITE_REFUSED: lambda: world.storage.fail_next(FaultKind.WRITE_REFUSED),
            FaultKind.WRITE_UNSURE: lambda: world.storage.fail_next(FaultKind.WRITE_UNSURE),
            FaultKind.READ_REFUSED: lambda: world.storage.fail_next(FaultKind.READ_REFUSED),
            FaultKind.STORAGE_AWAY: lambda: world.storage.go_away(world.draws.real(0.01, 0.5)),
            FaultKind.CHECKPOINT_CANCELLED: self._cancel_checkpoint,
            FaultKind.SAVEPOINT: self._take_savepoint,
            FaultKind.JOB_CANCELLED: self._cancel_job,
            FaultKind.HOOK_FAILED: ledger.fail_next,
            FaultKind.HOOK_LATE: lambda: ledger.delay_next(world.draws.pick((0.005, 0.05, 0.5))),
            FaultKind.RESCALED: lambda: self._user.rescale(),
            FaultKind.STOPPED: lambda: self._user.stop(drain=False),
            FaultKind.DRAINED: lambda: self._user.stop(drain=True),
        }
        world.on_moment = self.occurred

    def go_on_with(self, control: ControlPlane) -> None:
        """Another job runs now."""
        self._control = control
        self._user = User(self._world, control, self._plan)

    def occurred(self, moment: Moment) -> None:
        """A moment has come."""
        self._occurred[moment] += 1
        occurrence = self._occurred[moment]
        for fault in [f for f in self._waiting if f.moment is moment and f.occurrence == occurrence]:
            self._waiting.remove(fault)
            self._due.append((self._world.trace.moves + fault.delay, fault))

    def inject_due(self) -> None:
        """Inject what is due at this move."""
        if self._world.is_calm or not self._due:
            return
        moves = self._world.trace.moves
        due = [fault for at, fault in self._due if at <= moves]
        if not due:
            return
        self._due = [(at, fault) for at, fault in self._due if at > moves]
        for fault in due:
            self._inject_one(fault)

    def _inject_one(self, fault: PlannedFault) -> None:
        self._world.trace.note("** fault:", fault)
        self._inject[fault.kind]()

    def _victim(self, *, uploads: bool = False) -> SimulatedProcess | None:
        alive = [process for process in self._control.processes.values() if process.may_die]
        running = [process for process in alive if process.runs] or alive
        if uploads:
            running = [process for process in running if _vertex(process) in self._plan.uploading] or running
        return self._world.draws.pick(running) if running else None

    def _crash(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.die(FaultKind.CRASH)

    def _crash_in_step(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.die_after_effects(self._world.draws.below(4))

    def _crash_in_upload(self) -> None:
        victim = self._victim(uploads=True)
        if victim is not None:
            victim.die_after_uploads(self._world.draws.between(0, 2))

    def _cancel_checkpoint(self) -> None:
        newest, running = self._control.masters.newest, self._control.running_checkpoints
        if newest is None or not running:
            return
        draws, scheduler = self._world.draws, newest.scheduler
        checkpoint, subtasks = draws.pick(running), list(self._control.processes)
        if not subtasks:
            return
        subtask = draws.pick(subtasks)
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED
        outcome = scheduler.decline(
            scheduler.attempt_of(subtask), subtask, checkpoint, reason, "for the simulation"
        )
        self._world.trace.note(f"{subtask} declines checkpoint {checkpoint}: {outcome.value}")
        if outcome is MessageOutcome.ACCEPTED:
            self._world.counts.happened(FaultKind.CHECKPOINT_CANCELLED)

    def _refuse_deployment(self) -> None:
        if self._control.execution is not None:
            self._control.execution.refuse_next_deployment()

    def _take_savepoint(self) -> None:
        newest = self._control.masters.newest
        if newest is not None and newest.scheduler.state is JobState.RUNNING:
            self._world.counts.happened(FaultKind.SAVEPOINT)
            newest.scheduler.trigger_checkpoint(SnapshotKind.SAVEPOINT)

    def _cancel_job(self) -> None:
        newest = self._control.masters.newest
        if newest is not None and not newest.scheduler.state.is_terminal:
            self._world.counts.happened(FaultKind.JOB_CANCELLED)
            newest.scheduler.cancel()


def _vertex(process: SimulatedProcess) -> str:
    return "" if process.role is None else process.role.subtask.vertex
