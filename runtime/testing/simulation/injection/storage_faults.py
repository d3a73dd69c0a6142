"""Faults of the storage; `FaultyStorage` carries them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily, Strike
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind


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
