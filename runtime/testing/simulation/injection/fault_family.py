"""`FaultFamily`: the faults of one part of the world: how often, when, and what each does.

Every part of the world has one file with its family: processes, JobMasters, storage, requests, and so on. A
new kind of fault needs a name in `FaultKind` and a strike in the family of its part. If seeds are to draw it,
it needs a place in the family's `planned`. A fault that strikes once counts itself when it really happens. A
condition that lasts, such as a cut network, ends when the world calms down: see `World.when_calm`.

Each family draws from a stream of its own. So a new family changes nothing of what the others draw.

Draws the failures that every seed may have: what goes wrong, and at which moment.

Families of faults draw more of their own (`fault_family`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: Makes a fault happen now, or as soon as what it waits for is there.
Strike: TypeAlias = Callable[[Target], None]

#: When a fault is due; moments of the checkpoints first, because that is where the difficulties are.
MOMENTS: tuple[Moment, ...] = (
    *(Moment.MOVE,) * 4,
    *(Moment.TRIGGERED,) * 3,
    *(Moment.SNAPSHOT,) * 4,
    *(Moment.ACKNOWLEDGED,) * 4,
    *(Moment.WRITING,) * 3,
    *(Moment.COMPLETED,) * 3,
    *(Moment.COMMITTED,) * 3,
    Moment.STARTED,
    Moment.END_OF_DATA,
    Moment.FINISHED,
)


@dataclass(frozen=True, slots=True)
class FaultFamily:
    """The faults of one part of the world; see the module's text.

    Attributes:
        strikes: What each kind does.
        planned: Kinds that a seed draws from, as often as each stands here; empty for none.
        stream: Number of the seed's stream that the family draws from.
        share: Probability with which a seed has faults of this family.
        most: Most of them in one seed.
        moments: When they are due, as often as each stands here.
    """

    strikes: Mapping[FaultKind, Strike]
    planned: tuple[FaultKind, ...] = ()
    stream: int = 0
    share: float = 0.0
    most: int = 3
    moments: tuple[Moment, ...] = MOMENTS

    def draw(self, seed: Draws, lasts: int) -> tuple[PlannedFault, ...]:
        """The faults of this family that a seed has.

        Args:
            seed: The streams of the seed.
            lasts: Moves until the faults stop.
        """
        draws = seed.stream(self.stream)
        if not self.planned or not draws.chance(self.share):
            return ()
        return tuple(self._draw_one(draws, lasts) for _ in range(draws.between(1, self.most)))

    def _draw_one(self, draws: Draws, lasts: int) -> PlannedFault:
        moment = draws.pick(self.moments)
        occurrence = draws.below(lasts) if moment is Moment.MOVE else draws.between(1, 6)
        return PlannedFault(draws.pick(self.planned), moment, occurrence, draw_delay(draws))


def draw_delay(draws: Draws) -> int:
    """Moves between the moment of a fault and the fault."""
    return draws.pick((0, 1, draws.below(10), draws.below(60)))


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
