"""`SimulatedRun`: the engine of the simulation. It makes moves until the jobs of a run have ended.

A move is the smallest thing that can happen: one step of a subtask, one arrival, one piece of background
work, one timer. The draws choose among all possible moves. If no move is possible, time passes until a move
is possible. First the drawn conditions apply and faults strike. Then the world calms down. After the last
delayed arrival the job must end.

The caller provides the jobs and judges the outcome: `user_run` for users, `tests/simulated_jobs` for seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.runtime.job.job_state import JobState, SchedulerStatistics
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane, describe_standstill
from penstock.runtime.testing.simulation.cluster.master import SimulatedJob
from penstock.runtime.testing.simulation.run.injector import FaultInjector
from penstock.runtime.testing.simulation.run.target import Plan
from penstock.runtime.testing.simulation.world.faults import FaultKind
from penstock.runtime.testing.simulation.world.world import World

#: Maximum moves of a job after the faults and their delays have ended.
MOST_CALM_MOVES: Final = 60_000

#: Factor of `MOST_CALM_MOVES` in the first `_WAITING` calm seconds. A job may wait for a certain time, and
#: take checkpoints every few milliseconds until then.
_WHILE_WAITING: Final = 20

_WAITING: Final = 200.0

#: Maximum seconds after the faults.
MOST_CALM_SECONDS: Final = 900.0

#: Maximum seconds of a move in a calm world, so that checkpoints finish within any timeout.
_CALM_TICK: Final = 0.000005


#: Cause that a JobMaster reports if it finds the job's end in the log, after its predecessor has died.
ENDED_BEFORE: Final = "it had ended before"


class StandstillError(AssertionError):
    """The job does not end although no more faults occur."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Numbers of a run, over all its jobs.

    Attributes:
        seconds: Virtual seconds.
    """

    happened: Mapping[FaultKind, int] = field(default_factory=dict)
    moves: int = 0
    seconds: float = 0.0
    attempts: int = 0
    completed: int = 0
    jobs: int = 0


class SimulatedRun:
    """Runs one job, or several in a row, in one world; see the module's docstring.

    Args:
        plan: The faults and requests; none by default.
        take_back: Function that resets the external world to a checkpoint, as a user would. Takes a job's id,
            an attempt and its checkpoint; `None` for the newest checkpoint.
        most_moves: Maximum moves after the faults have stopped. `None` allows 60,000, and twenty times as
            many within the first 200 s.
    """

    def __init__(
        self,
        world: World,
        job: SimulatedJob,
        plan: Plan | None = None,
        *,
        take_back: Callable[[str, int, int | None], None] = lambda job_id, attempt, checkpoint_id: None,
        most_moves: int | None = None,
    ) -> None:
        self.world = world
        #: The jobs of the run, in order.
        self.controls = [ControlPlane(world, job)]
        self._injector = FaultInjector(world, self.control, plan or Plan())
        checkpointing = job.config.checkpointing
        allow_older = checkpointing is not None and checkpointing.allow_older
        world.fallbacks.watch(take_back, allow_older=allow_older)
        self._most_moves = MOST_CALM_MOVES if most_moves is None else most_moves
        self._while_waiting = _WHILE_WAITING if most_moves is None else 1
        self._calm_since = (0, 0.0)

    @property
    def control(self) -> ControlPlane:
        """The control plane of the newest job."""
        return self.controls[-1]

    def run_to_end(
        self, next_job: Callable[[JobState], SimulatedJob | None] | None = None
    ) -> tuple[JobState, str]:
        """Run the job, then the job, if any, that `next_job` makes from its final state.

        Returns:
            The final state of the last job, and its cause.

        Raises:
            StandstillError: A job does not end.
            Exception: An error that was not injected, which is a bug.
        """
        end = self._run_newest()
        job = None if next_job is None else next_job(end[0])
        if job is None:
            return end
        self.continue_with(job)
        return self._run_newest()

    def _run_newest(self) -> tuple[JobState, str]:
        control = self.control
        control.begin()
        while (end := control.end) is None:
            self.step()
        return end

    def step(self) -> None:
        """Make one move, after the faults that are due; raises as `run_to_end` does."""
        self._injector.inject_due()
        self._calm_down_in_time()
        if not self.move():
            raise StandstillError("nothing can happen any more: " + self.describe())

    def continue_with(self, job: SimulatedJob) -> None:
        """Continue with another job; processes of the previous one may still live."""
        self.controls.append(ControlPlane(self.world, job))
        self._injector.continue_with(self.control)
        self._calm_since = self.world.trace.moves, self.world.clock.monotonic()

    def describe(self) -> str:
        return describe_standstill(self.world, self.control)

    def statuses(self) -> list[SchedulerStatistics]:
        return [control.masters.last.scheduler.statistics() for control in self.controls]

    @property
    def reason_of_the_end(self) -> str:
        statuses = self.control.masters.statuses()
        ended = None if self.control.end is None else self.control.end[0]
        ends = [s for s in statuses if s.transitions and s.state.is_terminal]
        # A JobMaster that is cancelled while it starts reports a cancelled job, whatever the leader decided.
        ends = [s for s in ends if s.state is ended] or ends
        # A JobMaster that takes over an ended job repeats its end without its cause.
        ends = [s for s in ends if s.transitions[-1].cause != ENDED_BEFORE] or ends
        if not ends:
            return ""
        # A JobMaster that takes over may find that its attempt is one too many; the cause follows that text.
        _, _, too_many = ends[-1].cause.partition(" is one too many: ")
        return too_many or ends[-1].transitions[-1].cause

    def is_explained_by_damage(self, cause: str) -> bool:
        """Whether the newest job names a damaged file, in `cause` or in the reported cause of its end."""
        return self.world.damage.explains(cause + self.reason_of_the_end)

    def figures(self) -> RunFigures:
        statuses = self.statuses()
        return RunFigures(
            happened=self.world.counts.by_kind(),
            moves=self.world.trace.moves,
            seconds=self.world.clock.monotonic(),
            attempts=sum(status.attempt for status in statuses),
            completed=sum(0 if s.checkpoints is None else s.checkpoints.completed for s in statuses),
            jobs=len(statuses),
        )

    def move(self) -> bool:
        """Make one move or let time pass; `False` when no move will ever be possible."""
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
        tick = world.draws.real(0.0, _CALM_TICK if world.is_calm else world.conditions.tick)
        # `advance` would check each of millions of ticks.
        world.clock.advance_to(world.clock.monotonic() + tick)
        return True

    def _calm_down_in_time(self) -> None:
        world = self.world
        moves, now = world.trace.moves, world.clock.monotonic()
        if not world.is_calm:
            if moves >= world.conditions.lasts:
                world.calm_down()
                self._calm_since = moves, now
            return
        if now <= world.last_arrival:  # the job may have nothing to do until the last arrival
            self._calm_since = moves, now
        since_moves, since = self._calm_since
        times = 1 if now - since > _WAITING else self._while_waiting
        if moves - since_moves > self._most_moves * times or now - since > MOST_CALM_SECONDS:
            spent = f"{moves - since_moves} moves and {now - since:.0f} s"
            msg = f"the job has not ended within {spent} after the faults: "
            raise StandstillError(msg + self.describe())
