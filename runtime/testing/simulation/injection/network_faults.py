"""Faults of the network: it is cut in two, or a process counts as dead that lives; see `links`."""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.faults import FaultKind

#: How often a JobMaster is on the island.
_WITH_MASTER: Final = 0.3


def _cut(target: Target) -> None:
    draws, control = target.draws, target.control
    island = [process.id for process in control.alive if draws.chance(0.4)]
    newest = control.masters.newest
    if newest is not None and control.job.config.checkpointing is not None and draws.chance(_WITH_MASTER):
        island.append(str(newest))
    seconds = draws.pick((0.01, 0.1, 1.0, 10.0))
    noticed_after = draws.real(0.0, seconds) if draws.chance(0.6) else None
    control.cut_network(island, seconds, noticed_after)


def _believe_dead(target: Target) -> None:
    victim = target.victim()
    if victim is not None:
        target.control.believe_dead(victim, target.draws.pick((0.01, 0.3, 5.0, 1000.0)))


#: What strikes the network.
NETWORK_FAULTS: Final = FaultFamily(
    {FaultKind.NETWORK_CUT: _cut, FaultKind.ZOMBIE: _believe_dead},
    planned=(FaultKind.NETWORK_CUT, FaultKind.ZOMBIE),
    stream=11,
    share=0.3,
    most=2,
)
