"""`Plan`: the failures and requests that strike one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.runtime.testing.simulation.world.faults import PlannedFault


@dataclass(frozen=True, slots=True)
class Plan:
    """The failures and requests that strike one job.

    Attributes:
        faults: What will go wrong, if its moment comes.
        uploading: Vertices whose snapshots are written as files; uploads are stopped there first.
        rescalable: Vertices whose parallelism may change.
        rescale_to: The parallelism that the user asks for, by vertex; drawn on the way when `None`.
        insists: Whether the user asks again for a stop whose savepoint has failed.
    """

    faults: tuple[PlannedFault, ...] = ()
    uploading: frozenset[str] = frozenset()
    rescalable: tuple[str, ...] = ()
    rescale_to: Mapping[str, int] | None = None
    insists: bool = False
