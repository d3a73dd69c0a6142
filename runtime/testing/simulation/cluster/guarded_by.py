"""`GuardedBy`: how a simulated process reaches the JobMaster that it guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.execution.heartbeat import Silence
from penstock.runtime.execution.processes import Died, Place, Reply
from penstock.runtime.testing.simulation.cluster.frames import COUNTS_AS_DEAD
from penstock.runtime.testing.simulation.cluster.links import Links
from penstock.runtime.testing.simulation.cluster.master import Master, Masters
from penstock.runtime.testing.simulation.cluster.suspension import Suspension
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import World

_DIED = Died("the JobMaster has died")


class GuardedBy:
    """The `GuardedMaster` of one process.

    Args:
        process: The guard.
        suspension: Whether the guard can run.
        masters: Kill a JobMaster.
        links: Whom the guard reaches.

    Attributes:
        master: The JobMaster that has renewed the guard's lease last.
    """

    def __init__(
        self, world: World, process: str, suspension: Suspension, masters: Masters, links: Links
    ) -> None:
        self.master: Master | None = None
        self._world = world
        self._process = process
        self._suspension = suspension
        self._masters = masters
        self._links = links

    def ask_master(self, reply: Reply[None]) -> None:
        """Ask the JobMaster whether it is there; a frozen one answers when it wakes up."""

        def asked(master: Master) -> None:
            if not master.holds(Happening.OPERATION, lambda: asked(master), "is asked whether it is there"):
                self._answer(master, reply, None if master.is_alive else _DIED)

        self._travel("asks its JobMaster", asked, reply)

    def processor_time_of_master(self, place: Place, reply: Reply[float]) -> None:
        """Read the processor time; the kernel answers, whatever the JobMaster does."""

        def read(master: Master) -> None:
            self._answer(master, reply, master.processor_time() if master.is_alive else _DIED)

        self._travel("reads a processor time", read, reply)

    def end_master(self, place: Place, why: str) -> None:
        """Kill the JobMaster if it is still this process."""

        def kill(master: Master) -> None:
            if master.place == place:
                self._masters.on_kill(master)

        self._travel(f"kills its JobMaster: {why}", kill, lambda answer: None)

    def note_silence(self, place: Place, silence: Silence) -> None:
        """The JobMaster does not answer."""
        self._world.trace.note(f"{self._process}: {self.master} is silent: {silence}")

    def _travel(self, what: str, arrive: Callable[[Master], None], reply: Callable[[Any], None]) -> None:
        master = self.master
        if master is None:
            return

        def reach() -> None:
            self._links.carry(
                Happening.OPERATION,
                self._process,
                str(master),
                lambda: arrive(master),
                lambda: self._answer(master, reply, COUNTS_AS_DEAD),
                what,
            )

        self._world.send(Happening.OPERATION, reach, self._process, what)

    def _answer(self, master: Master, reply: Callable[[Any], None], answer: Any) -> None:
        def hear() -> None:
            if not self._suspension.holds(Happening.OPERATION, hear, "an answer of its JobMaster"):
                reply(answer)

        def arrive() -> None:
            name = str(master)
            self._links.carry(Happening.OPERATION, self._process, name, hear, hear, "an answer")

        self._world.send(Happening.OPERATION, arrive, f"{self._process}: an answer of {master}")
