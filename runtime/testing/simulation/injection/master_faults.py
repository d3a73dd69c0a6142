"""Faults of the JobMaster, and of the hooks that run in it."""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.cluster.control_plane import Replaced
from penstock.runtime.testing.simulation.injection.fault_family import MOMENTS, FaultFamily
from penstock.runtime.testing.simulation.injection.target import Target
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment

#: What becomes of a frozen JobMaster whose successor begins, as often as it stands here.
_WHEN_REPLACED: Final = (*(Replaced.WAKES_EARLY,) * 2, Replaced.WAKES_LATE, Replaced.IS_KILLED)


def _freeze(target: Target) -> None:
    draws = target.draws
    seconds = draws.pick((0.02, 0.2, 2.0, 20.0))
    successor_after = draws.real(0.0, seconds) if draws.chance(0.75) else None
    target.control.freeze_master(seconds, successor_after, draws.pick(_WHEN_REPLACED))


#: What strikes JobMasters. Every seed draws the others in `draw_faults`, those of hooks in `draw_axes`, and
#: crashes in a compaction where the log is compacted soon.
MASTER_FAULTS: Final = FaultFamily(
    {
        FaultKind.MASTER_CRASH: lambda target: target.control.crash_master(),
        FaultKind.TWO_MASTERS: lambda target: target.control.doubt_master(),
        FaultKind.HOOK_FAILED: lambda target: target.ledger.fail_next(),
        FaultKind.HOOK_LATE: lambda target: target.ledger.delay_next(target.draws.pick((0.005, 0.05, 0.5))),
        FaultKind.MASTER_FROZEN: _freeze,
        FaultKind.CRASH_IN_COMPACTION: lambda target: target.control.crash_in_compaction(
            target.draws.below(4)
        ),
    },
    planned=(FaultKind.MASTER_FROZEN,),
    stream=10,
    share=0.3,
    most=2,
    moments=(*MOMENTS, *(Moment.WRITING,) * 12, *(Moment.ACKNOWLEDGED,) * 4),
)
