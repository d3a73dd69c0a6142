"""Faults that a user asks for by name, and when they strike in a run.

Every run with failures has the usual ones (`draw_faults`). A user may ask for more, which not every job is
made for. Files are damaged or gone, a storage hangs, nodes are cut off. A run has each of them once or twice,
or not at all.

A job may end because a file of its checkpoints was damaged: it has to name that file. If it may start from an
older checkpoint (`Checkpointing(allow_older=True)`), it may repeat what its sinks had committed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.misspelt_names import nearest_name
from penstock.runtime.testing.simulation.injection.fault_family import MOMENTS, draw_delay
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

#: A kind of faults that `simulate` adds to the usual ones.
Fault: TypeAlias = Literal[
    "damaged_files",
    "lost_files",
    "slow_storage",
    "hanging_storage",
    "partial_listings",
    "late_listings",
    "power_cuts",
    "full_disk",
    "network_cuts",
    "zombies",
    "clock_jumps",
    "frozen_processes",
    "frozen_job_master",
]

_KINDS: Final[Mapping[str, tuple[FaultKind, ...]]] = {
    "damaged_files": (
        FaultKind.FLIPPED_SLOT,
        FaultKind.FLIPPED_METADATA,
        *(FaultKind.FLIPPED_STATE,) * 2,
        FaultKind.FLIPPED_CHANGES,
        FaultKind.FLIPPED_IN_FLIGHT,
    ),
    "lost_files": (
        FaultKind.SLOT_GONE,
        FaultKind.METADATA_GONE,
        *(FaultKind.STATE_GONE,) * 2,
        FaultKind.CHANGES_GONE,
        FaultKind.IN_FLIGHT_GONE,
    ),
    "slow_storage": (FaultKind.STORAGE_SLOW,),
    "hanging_storage": (FaultKind.STORAGE_HANGS,),
    "partial_listings": (FaultKind.LISTED_IN_PART,),
    "late_listings": (FaultKind.LISTED_LATE,),
    "power_cuts": (FaultKind.POWER_CUT,),
    "full_disk": (FaultKind.DISK_FULL,),
    "network_cuts": (FaultKind.NETWORK_CUT,),
    "zombies": (FaultKind.ZOMBIE,),
    "clock_jumps": (FaultKind.CLOCK_SET,),
    "frozen_processes": (FaultKind.SUBTASK_FROZEN,),
    "frozen_job_master": (FaultKind.MASTER_FROZEN,),
}

#: Those that strike stored files.
_OF_FILES: Final = frozenset({"damaged_files", "lost_files"})

#: How often a run has a fault that was asked for.
_SHARE: Final = 0.7


def checked_faults(names: Iterable[str]) -> tuple[Fault, ...]:
    """The faults of these names, each once, in the order of `Fault`.

    Raises:
        ConfigurationError: There is no such fault.

    Example:
        >>> checked_faults(["zombies", "full_disk", "zombies"])
        ('full_disk', 'zombies')
    """
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        if name not in _KINDS:
            hint = nearest_name(str(name), _KINDS) or "."
            msg = f"there is no fault {name!r}{hint} These are known: {', '.join(_KINDS)}"
            raise ConfigurationError(msg)
    every: tuple[Fault, ...] = get_args(Fault)
    return tuple(name for name in every if name in asked)


def draw_chosen(draws: Draws, faults: Iterable[Fault], lasts: int) -> tuple[PlannedFault, ...]:
    """When they strike in one run.

    Args:
        draws: Chance.
        lasts: Moves until the faults stop.
    """
    planned = []
    for number, name in enumerate(faults):
        stream = draws.stream(number)
        for _ in range(stream.between(1, 2) if stream.chance(_SHARE) else 0):
            moment = stream.pick(MOMENTS)
            # Early: a user's job may be over soon.
            occurrence = stream.below(lasts // 2) if moment is Moment.MOVE else stream.between(1, 2)
            kind = stream.pick(_KINDS[name])
            planned.append(PlannedFault(kind, moment, occurrence, draw_delay(stream)))
    return tuple(planned)


def need_files(faults: Iterable[Fault]) -> bool:
    """Whether state must be in files of its own, so that there is something to strike."""
    return not _OF_FILES.isdisjoint(faults)
