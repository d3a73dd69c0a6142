"""`Suspension`: a process that can't run for a while, and what reaches it meanwhile.

That is SIGSTOP and SIGCONT, a virtual machine that is moved, or C code that holds the interpreter. Nothing of
the process goes on: no step, no timer, no background work. What was sent before is on its way. What arrives
is kept by the operating system, and is taken when the process wakes up. A frozen process can be killed.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import World


class Suspension:
    """Whether one process can run; see the module's text.

    Attributes:
        is_frozen: Whether it can't.
    """

    __slots__ = ("_held", "_world", "is_frozen")

    def __init__(self, world: World) -> None:
        self.is_frozen = False
        self._world = world
        self._held: list[tuple[Happening, Callable[[], None], tuple[object, ...]]] = []

    def freeze(self) -> None:
        """Nothing of the process goes on from now on."""
        self.is_frozen = True

    def wake(self) -> None:
        """Everything goes on; what was kept comes in the order that chance gives it."""
        self.is_frozen = False
        held, self._held = self._held, []
        for kind, act, what in held:
            self._world.agenda.add(kind, act, *what)

    def holds(self, kind: Happening, act: Callable[[], None], *what: object) -> bool:
        """Keep something for later if the process can't run now; whether it was kept."""
        if self.is_frozen:
            self._held.append((kind, act, what))
        return self.is_frozen
