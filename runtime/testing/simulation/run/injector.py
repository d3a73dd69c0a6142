"""`FaultInjector`: injects the planned faults at their moments.

A new kind of fault needs a name in `FaultKind` and a strike in `STRIKES`. A single fault counts itself when
it really happens. A lasting fault, such as a cut network, ends at the latest when the world calms down
(`World.when_calm`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane, Replaced
from penstock.runtime.testing.simulation.cluster.process import SimulatedProcess
from penstock.runtime.testing.simulation.run.damage_faults import DAMAGE
from penstock.runtime.testing.simulation.run.target import Plan, Strike, Target, User
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault
from penstock.runtime.testing.simulation.world.world import World


def _set_clock(target: Target) -> None:
    by = target.draws.pick((-3600.0, -1.0, 1.0, 3600.0))
    target.counts.happened(FaultKind.CLOCK_SET)
    target.world.clocks.set_wall_clocks(by)


#: Fates of a frozen JobMaster whose successor begins, weighted by their number of entries.
_WHEN_REPLACED: Final = (*(Replaced.WAKES_EARLY,) * 2, Replaced.WAKES_LATE, Replaced.IS_KILLED)


def _freeze_master(target: Target) -> None:
    draws = target.draws
    seconds = draws.pick((0.02, 0.2, 2.0, 20.0))
    successor_after = draws.real(0.0, seconds) if draws.chance(0.75) else None
    target.control.freeze_master(seconds, successor_after, draws.pick(_WHEN_REPLACED))


def _crash_in_compaction(target: Target) -> None:
    target.control.masters.compaction_crash.plan(target.draws.below(4))


def _delay_hook(target: Target) -> None:
    target.world.observer.delay_next_hook(target.draws.pick((0.005, 0.05, 0.5)))


#: Probability that the JobMaster is cut off, too.
_WITH_MASTER: Final = 0.3


def _cut(target: Target) -> None:
    draws, control = target.draws, target.control
    island = [process.id for process in control.alive if draws.chance(0.4)]
    newest = control.masters.newest
    if newest is not None and control.job.config.checkpointing is not None and draws.chance(_WITH_MASTER):
        island.append(str(newest))
    seconds = draws.pick((0.01, 0.1, 1.0, 10.0))
    noticed_after = draws.real(0.0, seconds) if draws.chance(0.6) else None
    control.cut_network(island, seconds, noticed_after)


def _at_process(strike: Callable[[Target, SimulatedProcess], None], *, uploads: bool = False) -> Strike:
    """Make a strike at one process, which `Target.victim` chooses."""

    def strike_one(target: Target) -> None:
        victim = target.victim(uploads=uploads)
        if victim is not None:
            strike(target, victim)

    return strike_one


def _believe_dead(target: Target, victim: SimulatedProcess) -> None:
    target.control.believe_dead(victim, target.draws.pick((0.01, 0.3, 5.0, 1000.0)))


def _crash_in_step(target: Target, victim: SimulatedProcess) -> None:
    victim.die_after_effects(target.draws.below(4))


def _crash_in_upload(target: Target, victim: SimulatedProcess) -> None:
    victim.die_after_uploads(target.draws.between(0, 2))


def _refuse_deployment(target: Target) -> None:
    if target.control.execution is not None:
        target.control.execution.processes.refuse_next_deployment()


def _freeze(target: Target, victim: SimulatedProcess) -> None:
    if not victim.is_frozen:
        victim.freeze(target.draws.pick((0.02, 0.2, 2.0, 20.0)))


def _crash_after_end(target: Target) -> None:
    finished = [process for process in target.control.alive if process.has_finished]
    if not finished:
        return
    victim = target.draws.pick(finished)
    if target.draws.chance(0.3):
        victim.die_with_its_answers()
    else:
        victim.die_when_its_end_is_known()


def _cancel_checkpoint(target: Target) -> None:
    newest, running = target.control.masters.answering, target.control.running_checkpoints
    if newest is None or not running:
        return
    draws, scheduler = target.draws, newest.scheduler
    checkpoint, subtasks = draws.pick(running), list(target.control.processes)
    if not subtasks:
        return
    subtask = draws.pick(subtasks)
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED
    outcome = scheduler.decline(
        scheduler.attempt_of(subtask), subtask, checkpoint, reason, "for the simulation"
    )
    target.world.trace.note(f"{subtask} declines checkpoint {checkpoint}: {outcome.value}")
    if outcome is MessageOutcome.ACCEPTED:
        target.counts.happened(FaultKind.CHECKPOINT_CANCELLED)


def _take_savepoint(target: Target) -> None:
    newest = target.control.masters.answering
    if newest is not None and newest.scheduler.state is JobState.RUNNING:
        target.counts.happened(FaultKind.SAVEPOINT)
        newest.scheduler.trigger_checkpoint(SnapshotKind.SAVEPOINT)


def _cancel_job(target: Target) -> None:
    newest = target.control.masters.answering
    if newest is not None and not newest.scheduler.state.is_terminal:
        target.counts.happened(FaultKind.JOB_CANCELLED)
        newest.scheduler.cancel()


def _fail_next(kind: FaultKind) -> Strike:
    return lambda target: target.world.storage.fail_next(kind)


def _go_away(target: Target) -> None:
    target.world.storage.go_away(target.draws.real(0.01, 0.5))


def _hang(target: Target) -> None:
    world, draws = target.world, target.draws
    given_up, done, later = draws.real(0.05, 1.0), draws.chance(0.5), draws.real(0.0, 2.0)

    def hang(effect: Callable[[], None]) -> None:
        world.answer_is_late_by(given_up)
        if done:
            at = world.clock.monotonic() + later
            world.agenda.add(Happening.OPERATION, effect, "a storage call that was given up is done", at=at)

    world.storage.hang_next(hang)


def _slow_down(target: Target) -> None:
    draws = target.draws
    target.world.slow_storage(draws.pick((0.01, 0.1, 1.0, 20.0)), draws.pick((0.1, 1.0, 30.0)))


def _list_in_part(target: Target) -> None:
    draws = target.draws
    target.world.storage.list_in_part(draws, draws.between(1, 6))
    if draws.chance(0.5):
        target.control.crash_master()  # the next JobMaster lists the storage


#: The strike of each kind of planned fault. `draw_faults`, `draw_chosen` and the tests' scenarios draw the
#: moments.
STRIKES: Final[Mapping[FaultKind, Strike]] = {
    # -- processes --
    FaultKind.CRASH: _at_process(lambda target, victim: victim.die(FaultKind.CRASH)),
    FaultKind.CRASH_IN_STEP: _at_process(_crash_in_step),
    FaultKind.CRASH_IN_UPLOAD: _at_process(_crash_in_upload, uploads=True),
    FaultKind.CRASH_AFTER_END: _crash_after_end,
    FaultKind.USER_ERROR: lambda target: target.world.fail_user_code(target.draws.below(10)),
    FaultKind.DEPLOYMENT_FAILED: _refuse_deployment,
    FaultKind.SUBTASK_FROZEN: _at_process(_freeze),
    # -- JobMasters --
    FaultKind.MASTER_CRASH: lambda target: target.control.crash_master(),
    FaultKind.CRASH_IN_COMPACTION: _crash_in_compaction,
    FaultKind.TWO_MASTERS: lambda target: target.control.doubt_master(),
    FaultKind.MASTER_FROZEN: _freeze_master,
    FaultKind.HOOK_FAILED: lambda target: target.world.observer.fail_next_hook(),
    FaultKind.HOOK_LATE: _delay_hook,
    # -- the storage, with its weak guarantees --
    FaultKind.WRITE_REFUSED: _fail_next(FaultKind.WRITE_REFUSED),
    FaultKind.WRITE_UNSURE: _fail_next(FaultKind.WRITE_UNSURE),
    FaultKind.READ_REFUSED: _fail_next(FaultKind.READ_REFUSED),
    FaultKind.STORAGE_AWAY: _go_away,
    FaultKind.STORAGE_HANGS: _hang,
    FaultKind.STORAGE_SLOW: _slow_down,
    FaultKind.LISTED_LATE: lambda target: target.world.storage.list_late(target.draws),
    FaultKind.LISTED_IN_PART: _list_in_part,
    FaultKind.POWER_CUT: lambda target: target.world.storage.cut_power_at_next_write(target.draws),
    FaultKind.DISK_FULL: lambda target: target.world.storage.fill_up(target.draws.real(0.01, 0.5)),
    **DAMAGE,
    # -- the network, and clocks --
    FaultKind.NETWORK_CUT: _cut,
    FaultKind.ZOMBIE: _at_process(_believe_dead),
    FaultKind.CLOCK_SET: _set_clock,
    # -- requests of the user --
    FaultKind.CHECKPOINT_CANCELLED: _cancel_checkpoint,
    FaultKind.SAVEPOINT: _take_savepoint,
    FaultKind.JOB_CANCELLED: _cancel_job,
    FaultKind.RESCALED: lambda target: target.user.rescale(),
    FaultKind.STOPPED: lambda target: target.user.stop(drain=False),
    FaultKind.DRAINED: lambda target: target.user.stop(drain=True),
}


#: Requests that stop a job with a savepoint.
_STOPS: Final = frozenset({FaultKind.STOPPED, FaultKind.DRAINED})


class FaultInjector:
    """Watches moments and injects the faults that were planned for them.

    A fault that can't happen when it is due, such as a crash without a process, is skipped and not counted.
    A fault that waits for an event, such as the next write, counts when it strikes.
    """

    def __init__(self, world: World, control: ControlPlane, plan: Plan) -> None:
        self._target = Target(world, control, plan, User(world, control, plan))
        self._occurred: Counter[Moment] = Counter()
        self._waiting: dict[tuple[Moment, int], list[PlannedFault]] = {}
        self._due: list[tuple[int, PlannedFault]] = []
        #: The move at which the first planned fault is due.
        self._next_due: float = math.inf
        for fault in plan.faults:
            if fault.moment is Moment.MOVE:
                self._wait_until(fault.occurrence, fault)
            else:
                self._waiting.setdefault((fault.moment, fault.occurrence), []).append(fault)
        world.on_moment = self.occurred
        self._target.user.stop_when_read()

    def continue_with(self, control: ControlPlane) -> None:
        """Continue with another job; it is never stopped, because no third job would continue it."""
        self._due = [(at, fault) for at, fault in self._due if fault.kind not in _STOPS]
        self._waiting = {
            moment: [fault for fault in faults if fault.kind not in _STOPS]
            for moment, faults in self._waiting.items()
        }
        target = self._target
        target.control = control
        target.user = User(target.world, control, target.plan)

    def occurred(self, moment: Moment) -> None:
        self._occurred[moment] += 1
        for fault in self._waiting.pop((moment, self._occurred[moment]), ()):
            self._wait_until(self._target.world.trace.moves + fault.delay, fault)

    def inject_due(self) -> None:
        world = self._target.world
        moves = world.trace.moves
        if moves < self._next_due or world.is_calm:
            return
        due = [fault for at, fault in self._due if at <= moves]
        self._due = [(at, fault) for at, fault in self._due if at > moves]
        self._next_due = min((at for at, _ in self._due), default=math.inf)
        for fault in due:
            world.trace.note("** fault:", fault)
            if fault.kind is FaultKind.EXTERNAL:
                self._strike_external(fault.name)
            else:
                STRIKES[fault.kind](self._target)

    def _strike_external(self, name: str) -> None:
        strike = self._target.plan.strike_external
        assert strike is not None, "faults of an external world are planned only with one"
        strike(name)

    def _wait_until(self, move: int, fault: PlannedFault) -> None:
        self._due.append((move, fault))
        self._next_due = min(self._next_due, move)
