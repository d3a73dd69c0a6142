"""`World`: what all parts of a simulated run share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.agenda import Agenda, Happening
from penstock.runtime.testing.simulation.world.clocks import Clocks
from penstock.runtime.testing.simulation.world.damage import Damage
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.testing.simulation.world.fallbacks import Fallbacks
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind, Moment
from penstock.runtime.testing.simulation.world.faulty_storage import FaultyStorage
from penstock.runtime.testing.simulation.world.places import Places
from penstock.runtime.testing.simulation.world.restores import Restores
from penstock.runtime.testing.simulation.world.spill_disk import SpillDisk
from penstock.runtime.testing.simulation.world.trace import Trace
from penstock.runtime.testing.simulation.world.valve_watch import ValveWatch
from penstock.runtime.testing.simulation.world.weather import CALM, Weather

#: Most seconds that a straggler is on its way.
_STRAGGLE: Final = 1.0


#: The stream of choices about clocks.
_CLOCK_STREAM: Final = 4_712

#: How often there is no room for a stored element.
_NO_ROOM: Final = 0.1


class SimulatedUserError(Exception):
    """The user's function fails because the simulation wants it to."""


class World:
    """Time, chance and storage; shared by all parts of a run.

    Args:
        seed: Decides what happens on the way.
        weather: What the world is like until it calms down.
        write: Takes the lines of the trace; `None` for no trace.
        clock: By default a new clock.
        storage: The checkpoint storage; by default a new one in memory.
        open_location: Opens places outside of that storage; by default there are none.

    Attributes:
        weather: What the world is like until it calms down.
        clock: The time of the world.
        clocks: Makes the clocks of processes.
        draws: Decides what happens on the way.
        counts: Failures that really happened.
        trace: What the run says about itself.
        agenda: What may happen next.
        storage: The checkpoint storage.
        damage: Which of its files were damaged or lost.
        fallbacks: Checks which checkpoints jobs start from.
        is_calm: Whether nothing goes wrong any more.
        last_arrival: When the last thing arrives that was held up before the world calmed down.
        spill_disk: Where alignments store what does not fit into memory.
        captured: Parts of checkpoints that were acknowledged with data in flight.
        storing: Subtasks in an alignment that has stored elements.
        stored: Parts of checkpoints whose alignment stored elements.
        spilled: Those of them whose alignment needed the disk.
        restored: Subtasks that began with data in flight.
        restores: What is different because a job came up at another parallelism.
        valves: Counts what happens around the valves of operator coordinators.
        before_effect: Called by users' code before it does something outside; its process may die there.
        on_moment: Called at moments at which planned faults are due.
    """

    def __init__(
        self,
        seed: int,
        weather: Weather,
        write: Callable[[str], None] | None,
        *,
        clock: ManualClock | None = None,
        storage: SnapshotStorage | None = None,
        open_location: StorageOpener | None = None,
    ) -> None:
        self.weather = weather
        self.clock = clock or ManualClock()
        self.draws = Draws(seed).stream(5)
        self.clocks = Clocks(self.clock, self.draws.stream(_CLOCK_STREAM), weather.clock_drift)
        self.counts = FaultCounts()
        self.counts.happened(FaultKind.CLOCKS_DIFFER, int(self.clocks.differ))
        self.trace = Trace(self.clock, write)
        self.agenda = Agenda(self.draws, weather.weights, weather.disorder)
        self.storage = FaultyStorage(self.clock, self.counts, storage)
        self.damage = Damage()
        self.fallbacks = Fallbacks(self.damage, self.counts)
        self._open_location = open_location
        self.is_calm = False
        self.last_arrival = 0.0
        self.spill_disk = SpillDisk(self._has_room)
        self.storing: set[SubtaskId] = set()
        self.captured = self.restored = self.stored = self.spilled = 0
        self.before_effect: Callable[[], None] = _nothing_runs
        self.on_moment: Callable[[Moment], None] = lambda moment: None
        self.restores = Restores(self.counts)
        self.valves = ValveWatch(self.counts, lambda moment: self.on_moment(moment))
        self._when_calm: list[Callable[[], None]] = []
        self._lateness: float | None = None
        self._slow_until = self._slowness = 0.0
        self._user_error_in: int | None = None

    def calm_down(self) -> None:
        """Let everything go well from now on, so that a job without progress has a bug."""
        self.is_calm = True
        self.storage.become_reliable()
        self.agenda.calm_down(CALM)
        self.trace.note("-- the world calms down --")
        ends, self._when_calm = self._when_calm, []
        for end in ends:
            end()

    def when_calm(self, end: Callable[[], None]) -> None:
        """End a condition that lasts, such as a cut network, when the world calms down."""
        self._when_calm.append(end)

    def places(self, storage: SnapshotStorage) -> StorageOpener:
        """Opens places for somebody who sees the checkpoint storage as `storage`."""
        return Places(storage, self._open_location)

    def arrival(self, slowness: float = 0.0) -> float | None:
        """When something arrives that is sent now; `None` for at once."""
        most = self.weather.latency + slowness
        if self.is_calm or not most:
            return None
        return self._held_up(self.draws.real(0.0, most))

    def repeats(self, kind: FaultKind) -> bool:
        """Whether something arrives twice; counted as this kind."""
        if self.is_calm or not self.draws.chance(self.weather.repeats):
            return False
        self.counts.happened(kind)
        return True

    def send(self, kind: Happening, act: Callable[[], None], *what: object) -> None:
        """Let something arrive after a while."""
        straggles = (
            kind is Happening.REPORT and not self.is_calm and self.draws.chance(self.weather.stragglers)
        )
        self.agenda.add(kind, act, *what, at=self.arrival(_STRAGGLE if straggles else 0.0))

    def record_processed(self) -> None:
        """Users' code takes a record: time passes, and it may fail.

        Raises:
            SimulatedUserError: It fails.
        """
        if self.is_calm:
            return
        if self.weather.seconds_per_record:
            self.clock.advance(self.weather.seconds_per_record)
        if self._user_error_in is not None:
            self._user_error_in -= 1
            if self._user_error_in < 0:
                self._user_error_in = None
                self.counts.happened(FaultKind.USER_ERROR)
                msg = "simulated"
                raise SimulatedUserError(msg)

    def answer_is_late_by(self, seconds: float) -> None:
        """Let the answer of the background work that is being done come late."""
        self._lateness = seconds

    def take_lateness(self) -> float | None:
        """When the answer of background work may come that was just done; `None` for at once."""
        seconds, self._lateness = self._lateness, None
        return self.slow_moment() if seconds is None else self._held_up(seconds)

    def _held_up(self, seconds: float) -> float:
        """When something arrives that is so late."""
        at = self.clock.monotonic() + seconds
        self.last_arrival = max(self.last_arrival, at)
        return at

    def slow_storage(self, seconds: float, lasts: float) -> None:
        """Let the storage be slow for a while.

        Args:
            seconds: Most seconds that a call is on its way, and its answer.
            lasts: Seconds until it is as fast as before.
        """
        self._slowness, self._slow_until = seconds, self.clock.monotonic() + lasts

    def slow_moment(self) -> float | None:
        """When a call of the storage arrives that is made now, or its answer; `None` for at once."""
        now = self.clock.monotonic()
        if self.is_calm or now >= self._slow_until:
            return None
        self.counts.happened(FaultKind.STORAGE_SLOW)
        return now + self.draws.real(0.0, self._slowness)

    def _has_room(self) -> bool:
        """Whether the disk of a node takes what an alignment stores."""
        if self.is_calm or not self.draws.chance(_NO_ROOM):
            return True
        self.counts.happened(FaultKind.NO_ROOM)
        return False

    def fail_user_code(self, after: int) -> None:
        """Let users' code fail when it takes the record after this many."""
        self._user_error_in = after


def _nothing_runs() -> None:
    """Nothing runs that could die."""
