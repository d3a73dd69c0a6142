"""`SimulatedRun`: makes one move after the other until the job of a run has ended.

A move is the smallest thing that can happen: one step of a subtask, one arrival, one piece of background
work, one timer. The draws choose among all that are possible; when nothing is, time passes until something
is. In the first part of a run there is weather and faults strike. Then the world calms down. When the last
thing has arrived that was held up before, the job must end.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.job.job_state import JobState, SchedulerStatistics
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane, describe_standstill
from penstock.runtime.testing.simulation.cluster.job import HookLedger, SimulatedJob
from penstock.runtime.testing.simulation.injection.injector import FaultInjector
from penstock.runtime.testing.simulation.injection.target import Plan
from penstock.runtime.testing.simulation.world.world import World
from penstock.runtime.time.durations import as_seconds

#: Most moves of a job after the faults have stopped and their delays are over.
MOST_CALM_MOVES: Final = 60_000

#: How many times as many a job may need in its first calm seconds. It may wait for a moment of the clock, and
#: take checkpoints every few milliseconds meanwhile.
_WHILE_WAITING: Final = 20
_WAITING: Final = 200.0

#: Most seconds after the faults.
MOST_CALM_SECONDS: Final = 900.0

#: Most seconds of a move in a calm world: checkpoints are in time whatever their timeout.
_CALM_TICK: Final = 0.000005


#: What a JobMaster says that finds the end in the log: the one that knew the reason has died.
ENDED_BEFORE: Final = "it had ended before"


class StandstillError(AssertionError):
    """The job does not end although nothing goes wrong any more."""


class SimulatedRun:
    """Runs one job, or several in a row, in one world; see the module's text.

    Args:
        job: The first job.
        plan: What strikes it.
        ledger: Knows what master hooks do.
        most_moves: Most moves after the faults have stopped. `None` allows 60,000, and twenty times as many
            within the first 200 s.
        most_seconds: Most virtual seconds after that.
    """

    def __init__(
        self,
        world: World,
        job: SimulatedJob,
        plan: Plan,
        ledger: HookLedger,
        *,
        most_moves: int | None = None,
        most_seconds: float = MOST_CALM_SECONDS,
    ) -> None:
        self.world = world
        self._ledger = ledger
        self._controls = [ControlPlane(world, job, ledger)]
        self._injector = FaultInjector(world, self.control, ledger, plan)
        self._most_moves = MOST_CALM_MOVES if most_moves is None else most_moves
        self._while_waiting = _WHILE_WAITING if most_moves is None else 1
        self._most_seconds = most_seconds
        self._calm_since = (0, 0.0)

    @property
    def control(self) -> ControlPlane:
        """The processes and JobMasters of the job that runs."""
        return self._controls[-1]

    @property
    def submitted(self) -> list[SimulatedJob]:
        """The jobs that have begun, oldest first."""
        return [control.job for control in self._controls]

    @property
    def controls(self) -> list[ControlPlane]:
        """The processes and JobMasters of each job that has begun, oldest first."""
        return list(self._controls)

    @property
    def jobs(self) -> int:
        """Number of jobs that have begun."""
        return len(self._controls)

    def run_to_end(self) -> tuple[JobState, str]:
        """Run the newest job; returns how it ended, and why.

        Raises:
            StandstillError: It does not end.
            Exception: Something failed that was not injected: a bug.
        """
        control = self.control
        control.begin()
        while (end := control.end) is None:
            self.step()
        return end

    def let_processes_end(self) -> None:
        """Go on until no process of any job lives: what nobody needs any more gives up by itself.

        Raises:
            StandstillError: One does not.
            Exception: Something failed that was not injected: a bug.
        """
        if not self.world.is_calm:
            self.world.calm_down()
        longest = 3 * max(as_seconds(control.job.config.advanced.lease_timeout) for control in self._controls)
        since, last_move = self.world.clock.monotonic(), self.world.trace.moves + self._most_moves
        while left := [process for control in self._controls for process in control.alive]:
            lasts = self.world.clock.monotonic() - since
            if lasts > longest or self.world.trace.moves > last_move or not self.move():
                names = ", ".join(map(str, left))
                moves = self.world.trace.moves - last_move + self._most_moves
                msg = f"processes live {lasts:g} s, {moves} moves after the end of their job: {names}"
                raise StandstillError(msg)

    def step(self) -> None:
        """Make one move, with the faults that are due before it.

        Raises:
            StandstillError: Nothing can happen any more, or the job does not end.
            Exception: Something failed that was not injected: a bug.
        """
        self._injector.inject_due()
        self._calm_down_in_time()
        if not self.move():
            raise StandstillError("nothing can happen any more: " + self.describe())

    def go_on_with(self, job: SimulatedJob) -> None:
        """Another job is the newest one from now on; the processes of the last one may still be about."""
        self._controls.append(ControlPlane(self.world, job, self._ledger))
        self._injector.go_on_with(self.control)
        self._calm_since = self.world.trace.moves, self.world.clock.monotonic()

    def describe(self) -> str:
        """What everybody waits for."""
        return describe_standstill(self.world, self.control)

    def statuses(self) -> list[SchedulerStatistics]:
        """What the last JobMaster of each job knows."""
        return [control.masters.last.scheduler.statistics() for control in self._controls]

    @property
    def reason_of_the_end(self) -> str:
        """Why the newest job has the state that it ended with."""
        statuses = self.control.masters.statuses()
        ended = None if self.control.end is None else self.control.end[0]
        ends = [s for s in statuses if s.transitions and s.state.is_terminal]
        # One that is asked to cancel while it comes up calls it so, whatever the one in charge has decided.
        ends = [s for s in ends if s.state is ended] or ends
        # One that takes over an ended job repeats its end, and does not know why.
        ends = [s for s in ends if s.transitions[-1].cause != ENDED_BEFORE] or ends
        if not ends:
            return ""
        # A JobMaster that takes over gives up as soon as its attempt is in the log: that is the job's cause.
        _, _, too_many = ends[-1].cause.partition(" is one too many: ")
        return too_many or ends[-1].transitions[-1].cause

    def move(self) -> bool:
        """Make one move or let time pass; `False` when nothing can ever happen."""
        world = self.world
        entry = world.agenda.take(world.clock.monotonic())
        if entry is None:
            if world.agenda.next_time is None:
                return False
            world.clock.advance_to(world.agenda.next_time)
            return True
        world.trace.moves += 1
        if world.trace.is_on:
            world.trace.note(*entry.what)
        entry.act()
        world.clock.advance(world.draws.real(0.0, _CALM_TICK if world.is_calm else world.weather.tick))
        return True

    def _calm_down_in_time(self) -> None:
        world = self.world
        moves, now = world.trace.moves, world.clock.monotonic()
        if not world.is_calm:
            if moves >= world.weather.lasts:
                world.calm_down()
                self._calm_since = moves, now
            return
        if now <= world.last_arrival:  # what was held up may be all that the job waits for
            self._calm_since = moves, now
        since_moves, since = self._calm_since
        times = 1 if now - since > _WAITING else self._while_waiting
        if moves - since_moves > self._most_moves * times or now - since > self._most_seconds:
            msg = f"the job has not ended {moves - since_moves} moves, {now - since:.0f} s after the faults: "
            raise StandstillError(msg + self.describe())
