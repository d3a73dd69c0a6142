"""Faults of the JobMaster, and of the hooks that run in it."""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.simulation.injection.fault_family import FaultFamily
from penstock.runtime.testing.simulation.world.faults import FaultKind

#: What strikes JobMasters. Every seed draws them in `draw_faults`, and those of hooks in `draw_axes`.
MASTER_FAULTS: Final = FaultFamily(
    {
        FaultKind.MASTER_CRASH: lambda target: target.control.crash_master(),
        FaultKind.TWO_MASTERS: lambda target: target.control.doubt_master(),
        FaultKind.HOOK_FAILED: lambda target: target.ledger.fail_next(),
        FaultKind.HOOK_LATE: lambda target: target.ledger.delay_next(target.draws.pick((0.005, 0.05, 0.5))),
    }
)
