"""The faults that seeds draw beyond those of every run: of each part of the world, and of stored files.

Each family draws from a stream of its own. So a new family changes nothing of what the others draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.runtime.testing.simulation.run.damage_faults import IN_FLIGHT_DAMAGE, RARE_DAMAGE
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.testing.simulation.world.faults import (
    MOMENTS,
    FaultKind,
    Moment,
    PlannedFault,
    draw_delay,
)


@dataclass(frozen=True, slots=True)
class FaultFamily:
    """Faults of one part of the world.

    Attributes:
        kinds: Kinds that a seed draws from, as often as each stands here.
        stream: Number of the seed's stream that the family draws from.
        share: Probability with which a seed has faults of this family.
        most: Most of them in one seed.
        moments: When they are due, as often as each stands here.
    """

    kinds: tuple[FaultKind, ...]
    stream: int
    share: float
    most: int = 3
    moments: tuple[Moment, ...] = MOMENTS

    def draw(self, seed: Draws, lasts: int) -> tuple[PlannedFault, ...]:
        """The faults of this family that a seed has.

        Args:
            seed: The streams of the seed.
            lasts: Moves until the faults stop.
        """
        draws = seed.stream(self.stream)
        if not draws.chance(self.share):
            return ()
        return tuple(self._draw_one(draws, lasts) for _ in range(draws.between(1, self.most)))

    def _draw_one(self, draws: Draws, lasts: int) -> PlannedFault:
        moment = draws.pick(self.moments)
        occurrence = draws.below(lasts) if moment is Moment.MOVE else draws.between(1, 6)
        return PlannedFault(draws.pick(self.kinds), moment, occurrence, draw_delay(draws))


_OF_MASTERS: Final = (*MOMENTS, *(Moment.WRITING,) * 12, *(Moment.ACKNOWLEDGED,) * 4)

FAMILIES: Final = (
    FaultFamily((FaultKind.SUBTASK_FROZEN,), stream=9, share=0.2, most=2),
    FaultFamily((FaultKind.CRASH_AFTER_END,), stream=17, share=0.2, most=2, moments=(Moment.FINISHED,)),
    FaultFamily((FaultKind.MASTER_FROZEN,), stream=10, share=0.3, most=2, moments=_OF_MASTERS),
    FaultFamily(
        (
            FaultKind.STORAGE_HANGS,
            FaultKind.LISTED_LATE,
            *(FaultKind.POWER_CUT,) * 3,
            FaultKind.DISK_FULL,
        ),
        stream=31,
        share=0.5,
    ),
    # What is not wrong with a storage, but weak.
    FaultFamily(
        (FaultKind.STORAGE_SLOW, FaultKind.LISTED_IN_PART, FaultKind.LISTED_IN_PART),
        stream=16,
        share=0.25,
        most=2,
    ),
    FaultFamily((FaultKind.NETWORK_CUT, FaultKind.ZOMBIE), stream=11, share=0.3, most=2),
    FaultFamily((FaultKind.CLOCK_SET,), stream=12, share=0.15),
)


def draw_family_faults(seed: Draws, lasts: int) -> tuple[PlannedFault, ...]:
    """The faults of all families that a seed has.

    Args:
        seed: The streams of the seed.
        lasts: Moves until the faults stop.
    """
    return tuple(fault for family in FAMILIES for fault in family.draw(seed, lasts))


#: How many of the seeds have damaged files.
_SHARE: Final = 0.25

#: Moments at which a process begins to look: early, because a job may complete few checkpoints.
_MOMENTS: Final = (*(Moment.MOVE,) * 3, *(Moment.COMPLETED,) * 3, Moment.COMMITTED, Moment.STARTED)
_EARLY_MOVES: Final = 300

_HINTS: Final = (FaultKind.FLIPPED_HINT, FaultKind.HINT_GONE)
_OTHERS: Final = (
    FaultKind.FLIPPED_SLOT,
    FaultKind.SLOT_GONE,
    FaultKind.FLIPPED_METADATA,
    FaultKind.METADATA_GONE,
    FaultKind.FLIPPED_STATE,
    FaultKind.STATE_GONE,
    *RARE_DAMAGE * 2,
)


def draw_damage(draws: Draws, *, in_flight: bool, compacts: bool) -> tuple[PlannedFault, ...]:
    """The damage that a seed has.

    Args:
        draws: Chance.
        in_flight: Whether checkpoints hold data in flight.
        compacts: Whether the log is compacted, so that it has a hint.
    """
    if not draws.chance(_SHARE):
        return ()
    kinds = (*_OTHERS, *(IN_FLIGHT_DAMAGE * 4 if in_flight else ()), *(_HINTS * 4 if compacts else ()))
    planned = []
    for _ in range(draws.pick((1, 1, 2))):
        kind, moment = draws.pick(kinds), draws.pick(_MOMENTS)
        occurrence = draws.below(_EARLY_MOVES) if moment is Moment.MOVE else draws.between(1, 2)
        if kind in (FaultKind.FLIPPED_SAVEPOINT, FaultKind.SAVEPOINT_GONE):
            planned.append(PlannedFault(FaultKind.SAVEPOINT, moment, occurrence))
        planned.append(PlannedFault(kind, moment, occurrence, draw_delay(draws)))
    return tuple(planned)
