"""Faults of the storage; `FaultyStorage` carries them out."""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily, Strike
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.faults import FaultKind


def _fail_next(kind: FaultKind) -> Strike:
    return lambda target: target.world.storage.fail_next(kind)


def _go_away(target: Target) -> None:
    target.world.storage.go_away(target.draws.real(0.01, 0.5))


#: What strikes the storage. Every seed draws these kinds in `draw_faults`.
STORAGE_FAULTS: Final = FaultFamily(
    {
        FaultKind.WRITE_REFUSED: _fail_next(FaultKind.WRITE_REFUSED),
        FaultKind.WRITE_UNSURE: _fail_next(FaultKind.WRITE_UNSURE),
        FaultKind.READ_REFUSED: _fail_next(FaultKind.READ_REFUSED),
        FaultKind.STORAGE_AWAY: _go_away,
    }
)
