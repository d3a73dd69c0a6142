"""`Links`: who can reach whom, in a network that may be cut in two.

A *cut* puts some processes on an island. Calls between the island and the rest wait: the operating system
sends their packets again until the cut is healed. If it lasts, the cluster declares everybody on the island
dead. Calls from the rest to the island then fail, and will always fail. But the island lives on: its
processes step, send each other frames, and reach the storage and the systems behind the sinks. They are
*zombies*. After the healing their own calls arrive. A while later the cluster ends them.

One process may be believed dead without a cut. It is an island of its own, and its calls go through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from itertools import count

from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import World


class Reach(Enum):
    """What becomes of a call from one process to another."""

    OPEN = "arrives"
    WAITS = "waits for the end of a cut"
    GONE = "fails: its receiver counts as dead"


class Links:
    """Who can reach whom; see the module's text. Names of processes are unique in a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut_off: set[str] = set()
        self._gone: dict[str, int] = {}
        self._islands = count(1)
        self._waiting: list[tuple[Happening, Callable[[], None], tuple[object, ...]]] = []
        #: Whether everybody reaches everybody, and always did.
        self.is_whole = True

    @property
    def is_cut(self) -> bool:
        """Whether the network is cut in two."""
        return bool(self._cut_off)

    def is_gone(self, name: str) -> bool:
        """Whether the cluster has declared this process dead although it lives, or did."""
        return name in self._gone

    @property
    def cut_off(self) -> Collection[str]:
        """Who is on the island of a cut now."""
        return sorted(self._cut_off)

    def reach(self, caller: str, called: str) -> Reach:
        """What becomes of a call, or of its answer."""
        if self.is_whole:
            return Reach.OPEN
        island = self._gone.get(called)
        if island is not None and self._gone.get(caller) != island:
            return Reach.GONE
        if (caller in self._cut_off) != (called in self._cut_off):
            return Reach.WAITS
        return Reach.OPEN

    def carry(
        self,
        kind: Happening,
        caller: str,
        called: str,
        arrive: Callable[[], None],
        lose: Callable[[], None],
        *what: object,
    ) -> None:
        """Let something of a call take effect now, or when the cut is healed.

        Args:
            arrive: What happens where it is open.
            lose: What happens when the receiver of the call counts as dead.
            what: For the trace.
        """
        if self.is_whole:
            arrive()
            return
        match self.reach(caller, called):
            case Reach.OPEN:
                arrive()
            case Reach.GONE:
                lose()
            case Reach.WAITS:
                again = lambda: self.carry(kind, caller, called, arrive, lose, *what)  # noqa: E731
                self._waiting.append((kind, again, what))

    def starts(self, starter: str, started: str) -> None:
        """A new process is on the side of whoever has started it."""
        if starter in self._cut_off:
            self._cut_off.add(started)
        if starter in self._gone:
            self._gone[started] = self._gone[starter]

    def cut(self, island: Collection[str]) -> None:
        """Cut these off from all others."""
        self.is_whole = False
        self._cut_off.update(island)

    def declare_gone(self, island: Collection[str]) -> None:
        """The cluster declares these dead."""
        self.is_whole = False
        self._gone.update(dict.fromkeys(island, next(self._islands)))
        self._try_again()

    def heal(self) -> None:
        """Bring both parts together again; who counts as dead stays dead to the others."""
        self._cut_off.clear()
        self.is_whole = not self._gone
        self._try_again()

    def _try_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for kind, act, what in waiting:
            self._world.agenda.add(kind, act, *what)
