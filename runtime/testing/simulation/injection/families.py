"""`FAMILIES`: all families of faults, and what a seed draws of those that draw by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.runtime.testing.simulation.injection.clock_faults import CLOCK_FAULTS
from penstock.runtime.testing.simulation.injection.damage_faults import DAMAGE
from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily, Strike
from penstock.runtime.testing.simulation.injection.master_faults import MASTER_FAULTS
from penstock.runtime.testing.simulation.injection.network_faults import NETWORK_FAULTS
from penstock.runtime.testing.simulation.injection.process_faults import (
    FINISHED_PROCESS_FAULTS,
    PROCESS_FAULTS,
)
from penstock.runtime.testing.simulation.injection.request_faults import REQUESTS
from penstock.runtime.testing.simulation.injection.storage_faults import STORAGE_FAULTS, WEAK_STORAGE
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, PlannedFault

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
