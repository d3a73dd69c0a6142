"""`World`: the shared parts of a simulated run, with its trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.runtime.ports import Clock, SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.agenda import (
    CALM,
    Agenda,
    Clocks,
    Conditions,
    Draws,
    Happening,
)
from penstock.runtime.testing.simulation.world.disks import SpillDisk
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind, Moment
from penstock.runtime.testing.simulation.world.faulty_storage import FaultyStorage, Locations
from penstock.runtime.testing.simulation.world.watches import Damage, Fallbacks, Restores, RunObserver


class Trace:
    """Writes readable lines, if `write` is given.

    Attributes:
        is_on: Whether lines are written; check it before composing one.
        moves: Number of moves so far.

    Example:
        >>> from penstock.runtime.testing.manual_time import ManualClock
        >>> Trace(ManualClock(), print).note("map[0] crashes")
             0  0.00000s  map[0] crashes
    """

    __slots__ = ("_clock", "_write", "is_on", "moves")

    def __init__(self, clock: Clock, write: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._write = write
        self.is_on = write is not None
        self.moves = 0

    def note(self, *parts: object) -> None:
        if self._write is not None:
            text = " ".join(map(str, parts))
            self._write(f"{self.moves:>6} {self._clock.monotonic():>8.5f}s  {text}")


#: Maximum additional delay of a straggler, in seconds.
_STRAGGLE: Final = 1.0


#: Number of the random stream that determines the clocks.
_CLOCK_STREAM: Final = 4_712

#: Probability that there is no room for a stored element.
_NO_ROOM: Final = 0.1

#: Errors that show a mistake in a program: an external system that fails does not raise them.
_MISTAKES: Final = (AssertionError, AttributeError, LookupError, NameError, TypeError)


class SimulatedUserError(Exception):
    """An injected failure of a user's function."""


class World:
    """Time, chance and storage; shared by all parts of a run.

    Args:
        write: Takes the lines of the trace; `None` for no trace.
        storage: The checkpoint storage; by default a new one in memory.

    Attributes:
        is_calm: Whether no more faults occur.
        last_arrival: Arrival time of the latest message that was delayed before the world calmed down.
        spill_disks: A disk for each attempt of a subtask, for alignments that don't fit into memory.
        storing: Subtasks that are storing an alignment now.
        captured: Number of acknowledgements with in-flight data.
        restored: Number of subtasks that were restored with in-flight data.
        stored: Number of acknowledgements of alignments that stored elements.
        spilled: Number of acknowledgements of alignments that did not fit into memory.
        external_faults: Number of faults of an `ExternalWorld`. An error of a task that was deployed before
            the last of them is not a bug, unless it shows a mistake in a program.
        external_explains: Whether an error names something that an `ExternalWorld` has really lost.
        before_effect: Called before users' code has an effect outside its process, which may die there.
        thread: Runs a step of another thread of the current process; `None` outside of a process.
        on_moment: Called at each moment that a planned fault may wait for, except moves.
    """

    def __init__(
        self,
        seed: int,
        conditions: Conditions,
        write: Callable[[str], None] | None,
        *,
        clock: ManualClock | None = None,
        storage: SnapshotStorage | None = None,
    ) -> None:
        self.conditions = conditions
        self.clock = clock or ManualClock()
        self.draws = Draws(seed).stream(5)
        self.clocks = Clocks(self.clock, self.draws.stream(_CLOCK_STREAM), conditions.clock_drift)
        self.counts = FaultCounts()
        self.counts.happened(FaultKind.CLOCKS_DIFFER, int(self.clocks.differ))
        self.trace = Trace(self.clock, write)
        self.agenda = Agenda(self.draws, conditions.weights, conditions.disorder)
        self.storage = FaultyStorage(self.clock, self.counts, storage)
        self.damage = Damage()
        self.fallbacks = Fallbacks(self.damage, self.counts)
        self.is_calm = False
        self.last_arrival = 0.0
        self.spill_disks: list[SpillDisk] = []
        self.storing: set[SubtaskId] = set()
        self.external_faults = 0
        self.external_explains: Callable[[str], bool] = lambda cause: False
        self.captured = self.restored = self.stored = self.spilled = 0
        self.before_effect: Callable[[], None] = _nothing_runs
        self.thread: Callable[[Callable[[], None], str], None] | None = None
        self.on_moment: Callable[[Moment], None] = lambda moment: None
        self.restores = Restores(self.counts)
        self.observer = RunObserver()
        self._when_calm: list[Callable[[], None]] = []
        self._lateness: float | None = None
        self._slow_until = self._slowness = 0.0
        self._user_error_in: int | None = None

    def calm_down(self) -> None:
        """Stop all faults; a job that makes no progress from now on has a bug."""
        self.is_calm = True
        self.storage.become_reliable()
        self.agenda.calm_down(CALM)
        self.trace.note("-- the world calms down --")
        ends, self._when_calm = self._when_calm, []
        for end in ends:
            end()

    def when_calm(self, end: Callable[[], None]) -> None:
        """Call `end` when the world calms down, to end a fault that lasts, such as a network cut."""
        self._when_calm.append(end)

    def locations(self, storage: SnapshotStorage) -> StorageOpener:
        """The opener of a process that sees the checkpoint storage as `storage`."""
        return Locations(storage)

    def arrival(self, slowness: float = 0.0) -> float | None:
        """Arrival time of a message that is sent now; `None` for immediately."""
        most = self.conditions.latency + slowness
        if self.is_calm or not most:
            return None
        return self._delayed(self.draws.real(0.0, most))

    def repeats(self, kind: FaultKind) -> bool:
        """Draw whether something arrives twice, and count that as a fault of this kind."""
        if self.is_calm or not self.draws.chance(self.conditions.repeats):
            return False
        self.counts.happened(kind)
        return True

    def send(self, kind: Happening, act: Callable[[], None], *what: object) -> None:
        straggles = (
            kind is Happening.REPORT and not self.is_calm and self.draws.chance(self.conditions.stragglers)
        )
        self.agenda.add(kind, act, *what, at=self.arrival(_STRAGGLE if straggles else 0.0))

    def record_processed(self) -> None:
        """Let time pass for a record in users' code, which may fail with `SimulatedUserError`."""
        if self.is_calm:
            return
        if self.conditions.seconds_per_record:
            self.clock.advance(self.conditions.seconds_per_record)
        if self._user_error_in is not None:
            self._user_error_in -= 1
            if self._user_error_in < 0:
                self._user_error_in = None
                self.counts.happened(FaultKind.USER_ERROR)
                msg = "simulated"
                raise SimulatedUserError(msg)

    def answer_is_late_by(self, seconds: float) -> None:
        self._lateness = seconds

    def take_lateness(self) -> float | None:
        """Time of the answer of background work that has just ended; `None` for immediately."""
        seconds, self._lateness = self._lateness, None
        return self.slow_moment() if seconds is None else self._delayed(seconds)

    def _delayed(self, seconds: float) -> float:
        at = self.clock.monotonic() + seconds
        self.last_arrival = max(self.last_arrival, at)
        return at

    def slow_storage(self, seconds: float, lasts: float) -> None:
        """Delay each storage call and its answer by up to `seconds`, for the next `lasts` seconds."""
        self._slowness, self._slow_until = seconds, self.clock.monotonic() + lasts

    def slow_moment(self) -> float | None:
        """Arrival time of a storage call that is made now, or of its answer; `None` for immediately."""
        now = self.clock.monotonic()
        if self.is_calm or now >= self._slow_until:
            return None
        self.counts.happened(FaultKind.STORAGE_SLOW)
        return now + self.draws.real(0.0, self._slowness)

    def new_spill_disk(self) -> SpillDisk:
        disk = SpillDisk(self._has_room)
        self.spill_disks.append(disk)
        return disk

    def _has_room(self) -> bool:
        if self.is_calm or not self.draws.chance(_NO_ROOM):
            return True
        self.counts.happened(FaultKind.NO_ROOM)
        return False

    def may_come_from_outside(self, error: BaseException, since: int = 0) -> bool:
        """Whether an error may follow from a fault of the external world after the first `since` ones.

        An error that shows a mistake in a program never does, whatever has happened outside.
        """
        if self.external_faults <= since:
            return False
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, _MISTAKES):
                return False
            cause = cause.__cause__
        return True

    def outside_processes(self) -> None:
        """Begin work of a JobMaster; an effect of users' code in it ends no process."""
        self.before_effect = _nothing_runs
        self.thread = None

    def fail_user_code(self, after: int) -> None:
        self._user_error_in = after


def _nothing_runs() -> None:
    """Default for code outside of a process, which can't die."""
