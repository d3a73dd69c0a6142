"""Faults of the processes that run subtasks."""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment


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
