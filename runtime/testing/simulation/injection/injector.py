"""`FaultInjector`: makes the planned faults happen when their moment has come."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.job import HookLedger
from penstock.runtime.testing.simulation.injection.families import STRIKES
from penstock.runtime.testing.simulation.injection.target import Plan, Target, User
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault
from penstock.runtime.testing.simulation.world.world import World

#: Ends of a job that leave a part of its input to another job.
_STOPS: Final = frozenset({FaultKind.STOPPED, FaultKind.DRAINED})


class FaultInjector:
    """Watches moments and injects what was planned for them.

    A fault that can't happen when it is due (nothing runs that could crash) is left out and not counted.
    Those that wait for something, such as the next write, count when they strike.

    Args:
        control: Processes and JobMasters.
        ledger: Lets master hooks fail.
        plan: What is injected.
    """

    def __init__(self, world: World, control: ControlPlane, ledger: HookLedger, plan: Plan) -> None:
        self._target = Target(world, control, ledger, plan, User(world, control, plan))
        self._occurred: Counter[Moment] = Counter()
        self._waiting: dict[tuple[Moment, int], list[PlannedFault]] = {}
        self._due: list[tuple[int, PlannedFault]] = []
        #: The move at which the first of them is due.
        self._next_due: float = math.inf
        for fault in plan.faults:
            if fault.moment is Moment.MOVE:
                self._wait_until(fault.occurrence, fault)
            else:
                self._waiting.setdefault((fault.moment, fault.occurrence), []).append(fault)
        world.on_moment = self.occurred

    def go_on_with(self, control: ControlPlane) -> None:
        """Another job runs now. It is not stopped: no third one would go on with what it leaves."""
        self._due = [(at, fault) for at, fault in self._due if fault.kind not in _STOPS]
        self._waiting = {
            moment: [fault for fault in faults if fault.kind not in _STOPS]
            for moment, faults in self._waiting.items()
        }
        target = self._target
        target.control = control
        target.user = User(target.world, control, target.plan)

    def occurred(self, moment: Moment) -> None:
        """A moment has come."""
        self._occurred[moment] += 1
        for fault in self._waiting.pop((moment, self._occurred[moment]), ()):
            self._wait_until(self._target.world.trace.moves + fault.delay, fault)

    def inject_due(self) -> None:
        """Inject what is due at this move."""
        world = self._target.world
        moves = world.trace.moves
        if moves < self._next_due or world.is_calm:
            return
        due = [fault for at, fault in self._due if at <= moves]
        self._due = [(at, fault) for at, fault in self._due if at > moves]
        self._next_due = min((at for at, _ in self._due), default=math.inf)
        for fault in due:
            self._inject_one(fault)

    def _wait_until(self, move: int, fault: PlannedFault) -> None:
        self._due.append((move, fault))
        self._next_due = min(self._next_due, move)

    def _inject_one(self, fault: PlannedFault) -> None:
        self._target.world.trace.note("** fault:", fault)
        STRIKES[fault.kind](self._target)
