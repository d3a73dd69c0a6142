"""`Simulation`: runs one seed from its first move to the oracle's word.

A move is the smallest thing that can happen: one step of a subtask, one arrival, one piece of background
work, one timer. The draws choose among all that are possible; when nothing is, time passes until something
is. In the first part of a run there is weather and faults strike; then the world calms down, and the job must
end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.testing.simulation.code_hooks import RunHooks
from penstock.runtime.testing.simulation.control_plane import ControlPlane
from penstock.runtime.testing.simulation.faults import FaultKind
from penstock.runtime.testing.simulation.final_state import FinalState, newest_checkpoint
from penstock.runtime.testing.simulation.handover import Handover
from penstock.runtime.testing.simulation.injector import FaultInjector
from penstock.runtime.testing.simulation.job import FIRST_JOB, SimulatedJob
from penstock.runtime.testing.simulation.master_hook import HookLedger
from penstock.runtime.testing.simulation.oracle import Oracle
from penstock.runtime.testing.simulation.scenario import HandlerMode, Scenario
from penstock.runtime.testing.simulation.stuck import describe_standstill
from penstock.runtime.testing.simulation.surroundings import Around
from penstock.runtime.testing.simulation.world import World

#: A job must have ended so many moves after the world has calmed down, ...
MOST_CALM_MOVES: Final = 60_000

#: ... and so many seconds.
MOST_CALM_SECONDS: Final = 900.0

#: Most seconds of a move in a calm world: checkpoints are in time whatever their timeout.
_CALM_TICK: Final = 0.000005


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """How a run went.

    Attributes:
        seed: Its seed.
        problems: What is wrong; empty when nothing is.
        happened: Failures that really happened, by kind.
        state: How the job ended; `None` when it did not.
        moves: Moves made.
        seconds: Virtual seconds.
        attempts: Attempts of the job, or of both.
        completed: Checkpoints completed.
        transactions: Transactions committed.
        captured: Parts of checkpoints that were acknowledged with data in flight.
        restored: Subtasks that began with data in flight.
    """

    seed: int
    problems: tuple[str, ...]
    happened: Mapping[FaultKind, int] = field(default_factory=dict)
    state: JobState | None = None
    moves: int = 0
    seconds: float = 0.0
    attempts: int = 0
    completed: int = 0
    transactions: int = 0
    captured: int = 0
    restored: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class StandstillError(AssertionError):
    """The job does not end although nothing goes wrong any more."""


class Simulation:
    """One run; see the module's text.

    Args:
        scenario: What the seed picked.
        write: Takes the lines of the trace; `None` for no trace.

    Example:
        >>> from penstock.runtime.testing.simulation.scenario import draw_scenario
        >>> Simulation(draw_scenario(1)).run().passed
        True
    """

    def __init__(self, scenario: Scenario, write: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.world = World(scenario, write)
        self._ledger = HookLedger(self.world)
        hooks = RunHooks(self.world, lambda: self.control.processes)
        around = Around(hooks, self.world.system, self.world.valves, self._ledger.make)
        self._program = scenario.shape.build(around)
        hooks.vertex_of = {o.id: vertex.id for vertex in self._program.vertices for o in vertex.operators}
        first = SimulatedJob(FIRST_JOB, build_execution_graph(self._program), scenario.config)
        self._controls = [ControlPlane(self.world, first, self._ledger)]
        self._injector = FaultInjector(self.world, self.control, self._ledger)
        self._calm_since = (0, 0.0)

    @property
    def control(self) -> ControlPlane:
        """The processes and JobMasters of the job that runs."""
        return self._controls[-1]

    def run(self) -> SimulationResult:
        """Run to the end and ask the oracle.

        Raises:
            Exception: Something failed that nobody had injected: a bug of the runtime, or of the simulation.
        """
        world = self.world
        for line in self.scenario.describe() if world.trace.is_on else ():
            world.trace.note(line)
        self.control.begin()
        end = self._run_to_its_end()
        if self._begin_second_job(end[0]):
            end = self._run_to_its_end()
        return self._result(self._check(*end), end[0])

    def describe(self) -> str:
        """What everybody waits for."""
        return describe_standstill(self.world, self.control)

    def _run_to_its_end(self) -> tuple[JobState, str]:
        while (end := self.control.end) is None:
            self._injector.inject_due()
            self._calm_down_in_time()
            if not self._move():
                raise StandstillError("nothing can happen any more: " + self.describe())
        return end

    def _begin_second_job(self, state: JobState) -> bool:
        """Start another job from what this one has left, if that is wanted and there is something."""
        job = Handover(self.world, self.control.job).second(state, self._program)
        if job is None:
            return False
        self._controls.append(ControlPlane(self.world, job, self._ledger))
        self._injector.go_on_with(self.control)
        self._calm_since = self.world.trace.moves, self.world.clock.monotonic()
        self.control.begin()
        return True

    def _check(self, state: JobState, cause: str) -> list[str]:
        oracle = Oracle(self.scenario, self.world.system, self.world.restores)
        if state is JobState.CANCELLED:
            return oracle.check_cancelled()
        if state is not JobState.FINISHED:
            return [f"the job has {state.value}: {cause}"]
        if self.scenario.mode is HandlerMode.NO_CHECKPOINTS:
            return oracle.check_finished(None)
        self.world.storage.become_reliable()
        try:
            newest = newest_checkpoint(self.world.storage, self.control.job.id)
            # A second job may have found everything done, then it has taken none.
            assert newest is not None or len(self._controls) > 1, "no checkpoint stands in the log"
            state_left = None if newest is None else FinalState(self.world.storage, newest)
            return oracle.check_finished(state_left)
        except CorruptSnapshotError as error:
            return [f"the last checkpoint can't be read: {error}"]

    def _result(self, problems: list[str], state: JobState) -> SimulationResult:
        statuses = [control.masters.last.scheduler.status() for control in self._controls]
        expired = sum(
            record.failure is CheckpointFailureReason.CHECKPOINT_EXPIRED
            for status in statuses
            for record in status.checkpoint_history
        )
        self.world.counts.happened(FaultKind.CHECKPOINT_EXPIRED, expired)
        return SimulationResult(
            self.scenario.seed,
            tuple(problems),
            self.world.counts.by_kind(),
            state,
            self.world.trace.moves,
            self.world.clock.monotonic(),
            sum(status.attempt for status in statuses),
            sum(0 if status.checkpoints is None else status.checkpoints.completed for status in statuses),
            self.world.system.statistics().committed,
            self.world.captured,
            self.world.restored,
        )

    # -- moves --------------------------------------------------------------------------------------------

    def _move(self) -> bool:
        """Make one move or let time pass; `False` when nothing can ever happen."""
        world = self.world
        for control in self._controls:
            control.schedule_timers()
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
        since_moves, since = self._calm_since
        if moves - since_moves > MOST_CALM_MOVES or now - since > MOST_CALM_SECONDS:
            msg = f"the job has not ended {moves - since_moves} moves, {now - since:.0f} s after the faults: "
            raise StandstillError(msg + self.describe())
