"""Faults of clocks: somebody sets the wall clock. How fast clocks run is drawn with the weather."""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.faults import FaultKind


def _set_clock(target: Target) -> None:
    by = target.draws.pick((-3600.0, -1.0, 1.0, 3600.0))
    target.counts.happened(FaultKind.CLOCK_SET)
    target.world.clocks.set_wall_clocks(by)


#: What strikes clocks.
CLOCK_FAULTS: Final = FaultFamily(
    {FaultKind.CLOCK_SET: _set_clock}, planned=(FaultKind.CLOCK_SET,), stream=12, share=0.15
)
