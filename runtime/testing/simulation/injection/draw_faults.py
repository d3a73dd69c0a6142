"""Draws the failures that every seed may have: what goes wrong, and at which moment.

Families of faults draw more of their own (`fault_family`).
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import MOMENTS, draw_delay
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: What may be planned, as often as it stands here.
_PLANNED: Final = (
    *(FaultKind.CRASH,) * 4,
    *(FaultKind.CRASH_IN_STEP,) * 4,
    *(FaultKind.CRASH_IN_UPLOAD,) * 2,
    *(FaultKind.USER_ERROR,) * 2,
    *(FaultKind.CHECKPOINT_CANCELLED,) * 3,
    FaultKind.DEPLOYMENT_FAILED,
    FaultKind.WRITE_REFUSED,
    FaultKind.WRITE_REFUSED,
    FaultKind.WRITE_UNSURE,
    FaultKind.WRITE_UNSURE,
    FaultKind.READ_REFUSED,
    FaultKind.STORAGE_AWAY,
    *(FaultKind.SAVEPOINT,) * 3,
    *(FaultKind.MASTER_CRASH,) * 2,
    *(FaultKind.TWO_MASTERS,) * 2,
)


def draw_faults(draws: Draws, lasts: int) -> tuple[PlannedFault, ...]:
    """Draw what goes wrong while there is weather.

    Args:
        draws: Chance.
        lasts: Moves until the faults stop.
    """
    planned = []
    for _ in range(draws.pick((0, 1, 2, 3, 4, 6, 8))):
        moment = draws.pick(MOMENTS)
        occurrence = draws.below(lasts) if moment is Moment.MOVE else draws.between(1, 6)
        planned.append(PlannedFault(draws.pick(_PLANNED), moment, occurrence, draw_delay(draws)))
        if draws.chance(0.4):
            # A restart during the restart: whatever the first one brings down is hit again coming up.
            again = draws.pick((FaultKind.CRASH, FaultKind.CRASH_IN_STEP, FaultKind.READ_REFUSED))
            planned.append(
                PlannedFault(again, Moment.DEPLOYING, len(planned) + draws.between(1, 2), draws.below(30))
            )
    return tuple(planned)
