"""`FAMILIES`: faults of clocks, JobMasters, the network, processes and the storage, and requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import MessageOutcome
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.testing.simulation.cluster.control_plane import Replaced
from penstock.runtime.testing.simulation.injection.damage_faults import DAMAGE
from penstock.runtime.testing.simulation.injection.fault_family import MOMENTS, FaultFamily, Strike
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault


def _set_clock(target: Target) -> None:
    by = target.draws.pick((-3600.0, -1.0, 1.0, 3600.0))
    target.counts.happened(FaultKind.CLOCK_SET)
    target.world.clocks.set_wall_clocks(by)


#: What strikes clocks.
CLOCK_FAULTS: Final = FaultFamily(
    {FaultKind.CLOCK_SET: _set_clock}, planned=(FaultKind.CLOCK_SET,), stream=12, share=0.15
)


#: What becomes of a frozen JobMaster whose successor begins, as often as it stands here.
_WHEN_REPLACED: Final = (*(Replaced.WAKES_EARLY,) * 2, Replaced.WAKES_LATE, Replaced.IS_KILLED)


def _freeze_master(target: Target) -> None:
    draws = target.draws
    seconds = draws.pick((0.02, 0.2, 2.0, 20.0))
    successor_after = draws.real(0.0, seconds) if draws.chance(0.75) else None
    target.control.freeze_master(seconds, successor_after, draws.pick(_WHEN_REPLACED))


#: What strikes JobMasters. Every seed draws the others in `draw_faults`, those of hooks in `draw_job`, and
#: crashes in a compaction where the log is compacted soon.
MASTER_FAULTS: Final = FaultFamily(
    {
        FaultKind.MASTER_CRASH: lambda target: target.control.crash_master(),
        FaultKind.TWO_MASTERS: lambda target: target.control.doubt_master(),
        FaultKind.HOOK_FAILED: lambda target: target.ledger.fail_next(),
        FaultKind.HOOK_LATE: lambda target: target.ledger.delay_next(target.draws.pick((0.005, 0.05, 0.5))),
        FaultKind.MASTER_FROZEN: _freeze_master,
        FaultKind.CRASH_IN_COMPACTION: lambda target: target.control.crash_in_compaction(
            target.draws.below(4)
        ),
    },
    planned=(FaultKind.MASTER_FROZEN,),
    stream=10,
    share=0.3,
    most=2,
    moments=(*MOMENTS, *(Moment.WRITING,) * 12, *(Moment.ACKNOWLEDGED,) * 4),
)


#: How often a JobMaster is on the island.
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


def _believe_dead(target: Target) -> None:
    victim = target.victim()
    if victim is not None:
        target.control.believe_dead(victim, target.draws.pick((0.01, 0.3, 5.0, 1000.0)))


#: What strikes the network.
NETWORK_FAULTS: Final = FaultFamily(
    {FaultKind.NETWORK_CUT: _cut, FaultKind.ZOMBIE: _believe_dead},
    planned=(FaultKind.NETWORK_CUT, FaultKind.ZOMBIE),
    stream=11,
    share=0.3,
    most=2,
)


def _crash(target: Target) -> None:
    victim = target.victim()
    if victim is not None:
        victim.die(FaultKind.CRASH)


def _crash_in_step(target: Target) -> None:
    victim = target.victim()
    if victim is not None:
        victim.die_after_effects(target.draws.below(4))


def _crash_in_upload(target: Target) -> None:
    victim = target.victim(uploads=True)
    if victim is not None:
        victim.die_after_uploads(target.draws.between(0, 2))


def _refuse_deployment(target: Target) -> None:
    if target.control.execution is not None:
        target.control.execution.refuse_next_deployment()


def _freeze(target: Target) -> None:
    victim = target.victim()
    if victim is not None and not victim.is_frozen:
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


#: What strikes processes. Every seed draws the others in `draw_faults`.
PROCESS_FAULTS: Final = FaultFamily(
    {
        FaultKind.CRASH: _crash,
        FaultKind.CRASH_IN_STEP: _crash_in_step,
        FaultKind.CRASH_IN_UPLOAD: _crash_in_upload,
        FaultKind.USER_ERROR: lambda target: target.world.fail_user_code(target.draws.below(10)),
        FaultKind.DEPLOYMENT_FAILED: _refuse_deployment,
        FaultKind.SUBTASK_FROZEN: _freeze,
    },
    planned=(FaultKind.SUBTASK_FROZEN,),
    stream=9,
    share=0.2,
    most=2,
)

#: What strikes processes whose subtasks have done their work. It has a stream of its own.
FINISHED_PROCESS_FAULTS: Final = FaultFamily(
    {FaultKind.CRASH_AFTER_END: _crash_after_end},
    planned=(FaultKind.CRASH_AFTER_END,),
    stream=17,
    share=0.2,
    most=2,
    moments=(Moment.FINISHED,),
)


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


#: What is asked for. The scenario draws it, in `draw_faults`, `draw_job` and for the end of the first job.
REQUESTS: Final = FaultFamily(
    {
        FaultKind.CHECKPOINT_CANCELLED: _cancel_checkpoint,
        FaultKind.SAVEPOINT: _take_savepoint,
        FaultKind.JOB_CANCELLED: _cancel_job,
        FaultKind.RESCALED: lambda target: target.user.rescale(),
        FaultKind.STOPPED: lambda target: target.user.stop(drain=False),
        FaultKind.DRAINED: lambda target: target.user.stop(drain=True),
    }
)


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
            world.agenda.add(Happening.OPERATION, effect, "a storage call is done that was given up", at=at)

    world.storage.hang_next(hang)


def _slow_down(target: Target) -> None:
    draws = target.draws
    target.world.slow_storage(draws.pick((0.01, 0.1, 1.0, 20.0)), draws.pick((0.1, 1.0, 30.0)))


def _list_in_part(target: Target) -> None:
    draws = target.draws
    target.world.storage.list_in_part(draws, draws.between(1, 6))
    if draws.chance(0.5):
        target.control.crash_master()  # whoever comes up lists


#: What strikes the storage. Every seed draws the first four kinds in `draw_faults`.
STORAGE_FAULTS: Final = FaultFamily(
    {
        FaultKind.WRITE_REFUSED: _fail_next(FaultKind.WRITE_REFUSED),
        FaultKind.WRITE_UNSURE: _fail_next(FaultKind.WRITE_UNSURE),
        FaultKind.READ_REFUSED: _fail_next(FaultKind.READ_REFUSED),
        FaultKind.STORAGE_AWAY: _go_away,
        FaultKind.STORAGE_HANGS: _hang,
        FaultKind.LISTED_LATE: lambda target: target.world.storage.list_late(target.draws),
        FaultKind.POWER_CUT: lambda target: target.world.storage.cut_power_at_next_write(target.draws),
        FaultKind.DISK_FULL: lambda target: target.world.storage.fill_up(target.draws.real(0.01, 0.5)),
    },
    planned=(
        FaultKind.STORAGE_HANGS,
        FaultKind.LISTED_LATE,
        *(FaultKind.POWER_CUT,) * 3,
        FaultKind.DISK_FULL,
    ),
    stream=31,
    share=0.5,
)

#: What is not wrong with a storage, but weak. A family of its own: other draws stay as they are.
WEAK_STORAGE: Final = FaultFamily(
    {FaultKind.STORAGE_SLOW: _slow_down, FaultKind.LISTED_IN_PART: _list_in_part},
    planned=(FaultKind.STORAGE_SLOW, FaultKind.LISTED_IN_PART, FaultKind.LISTED_IN_PART),
    stream=16,
    share=0.25,
    most=2,
)


#: One for each part of the world.
FAMILIES: Final[tuple[FaultFamily, ...]] = (
    PROCESS_FAULTS,
    FINISHED_PROCESS_FAULTS,
    MASTER_FAULTS,
    STORAGE_FAULTS,
    WEAK_STORAGE,
    DAMAGE,
    NETWORK_FAULTS,
    CLOCK_FAULTS,
    REQUESTS,
)

#: What each kind of planned fault does.
STRIKES: Final[Mapping[FaultKind, Strike]] = {
    kind: strike for family in FAMILIES for kind, strike in family.strikes.items()
}


def draw_family_faults(seed: Draws, lasts: int) -> tuple[PlannedFault, ...]:
    """What a seed draws of each family.

    Args:
        seed: The streams of the seed.
        lasts: Moves until the faults stop.
    """
    return tuple(fault for family in FAMILIES for fault in family.draw(seed, lasts))
