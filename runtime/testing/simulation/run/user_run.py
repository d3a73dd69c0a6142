"""Runs a user's job once: in a random interleaving, without failures or with the failures of a seed.

Every run with failures has the usual faults (`draw_faults`). A user may request more by name: damaged or lost
files, a storage that hangs, processes that are cut off. A run has each of them once, twice, or not at all.

A job may fail because a file of its checkpoints was damaged; its error must name that file. If it may start
from an older checkpoint (`Checkpointing(allow_older=True)`), it may repeat rows that sinks committed since.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.job.job_state import JobState
from penstock.runtime.names import nearest_name
from penstock.runtime.testing.simulation.cluster.master import FIRST_JOB, SimulatedJob
from penstock.runtime.testing.simulation.run.simulated_run import RunFigures, SimulatedRun, StandstillError
from penstock.runtime.testing.simulation.run.target import Plan
from penstock.runtime.testing.simulation.run.uncontrolled import Uncontrolled, find_uncontrolled
from penstock.runtime.testing.simulation.run.user_job import Pace, UserJob, short_run_config
from penstock.runtime.testing.simulation.world.agenda import Conditions, Draws, draw_conditions
from penstock.runtime.testing.simulation.world.external import ExternalWorld, WorldContext
from penstock.runtime.testing.simulation.world.faults import (
    MOMENTS,
    FaultKind,
    Moment,
    PlannedFault,
    draw_delay,
    draw_faults,
)
from penstock.runtime.testing.simulation.world.world import World

#: A kind of faults that `simulate` adds to the usual ones.
Fault: TypeAlias = Literal[
    "damaged_files",
    "lost_files",
    "slow_storage",
    "hanging_storage",
    "partial_listings",
    "late_listings",
    "power_cuts",
    "full_disk",
    "network_cuts",
    "zombies",
    "clock_jumps",
    "frozen_processes",
    "frozen_job_master",
]

_KINDS: Final[Mapping[str, tuple[FaultKind, ...]]] = {
    "damaged_files": (
        FaultKind.FLIPPED_SLOT,
        FaultKind.FLIPPED_METADATA,
        *(FaultKind.FLIPPED_STATE,) * 2,
        FaultKind.FLIPPED_CHANGES,
        FaultKind.FLIPPED_IN_FLIGHT,
    ),
    "lost_files": (
        FaultKind.SLOT_GONE,
        FaultKind.METADATA_GONE,
        *(FaultKind.STATE_GONE,) * 2,
        FaultKind.CHANGES_GONE,
        FaultKind.IN_FLIGHT_GONE,
    ),
    "slow_storage": (FaultKind.STORAGE_SLOW,),
    "hanging_storage": (FaultKind.STORAGE_HANGS,),
    "partial_listings": (FaultKind.LISTED_IN_PART,),
    "late_listings": (FaultKind.LISTED_LATE,),
    "power_cuts": (FaultKind.POWER_CUT,),
    "full_disk": (FaultKind.DISK_FULL,),
    "network_cuts": (FaultKind.NETWORK_CUT,),
    "zombies": (FaultKind.ZOMBIE,),
    "clock_jumps": (FaultKind.CLOCK_SET,),
    "frozen_processes": (FaultKind.SUBTASK_FROZEN,),
    "frozen_job_master": (FaultKind.MASTER_FROZEN,),
}

#: The way to stop a job whose sources have no end; `"drain"` also ends event time.
Stop: TypeAlias = Literal["drain", "savepoint"]

#: The faults that strike stored files.
_OF_FILES: Final = frozenset({"damaged_files", "lost_files"})

#: Probability that a requested fault strikes in a run.
_SHARE: Final = 0.7


def checked_faults(names: Iterable[str], of_world: Iterable[str] = ()) -> tuple[str, ...]:
    """The faults of these names, each once, in the order of `Fault` and then of the external world.

    Raises:
        ConfigurationError: A fault is unknown.
    """
    wanted = [names] if isinstance(names, str) else list(names)
    known = (*get_args(Fault), *of_world)
    for name in wanted:
        if name not in known:
            hint = nearest_name(str(name), known) or "."
            msg = f"there is no fault {name!r}{hint} These are known: {', '.join(known)}"
            raise ConfigurationError(msg)
    return tuple(name for name in known if name in wanted)


def draw_chosen(draws: Draws, faults: Iterable[str], lasts: int) -> tuple[PlannedFault, ...]:
    """Draw the requested faults of one run, which has `lasts` moves until the faults stop."""
    planned = []
    for number, name in enumerate(faults):
        stream = draws.stream(number)
        for _ in range(stream.between(1, 2) if stream.chance(_SHARE) else 0):
            moment = stream.pick(MOMENTS)
            # Early, because a user's job may end soon.
            occurrence = stream.below(lasts // 2) if moment is Moment.MOVE else stream.between(1, 2)
            kind = stream.pick(_KINDS.get(name, (FaultKind.EXTERNAL,)))
            of_world = "" if name in _KINDS else name
            planned.append(PlannedFault(kind, moment, occurrence, draw_delay(stream), of_world))
    return tuple(planned)


#: Name in the report of a job that failed because the external world has really lost something.
FAILED_BY_LOSS: Final = "job failed by a loss outside"

_NEVER_ENDED: Final = (
    "Every source must end, or stop= must say how the job is stopped; most_moves= allows longer jobs."
)
_NEVER_STOPPED: Final = (
    "A job is stopped when completed checkpoints cover all input, and this one never was. It may have lost "
    "input, or the world does not learn the covered positions: KafkaSource needs group_id=. most_moves= "
    "allows longer jobs."
)

#: Latest move of a user's request; early, because a short job ends soon.
_EARLY_MOVES: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRun(RunFigures):
    """The outcome of a run.

    Attributes:
        output: The output of the sinks; `None` when the job did not finish.
        problem: The reason why the job did not finish; empty if it did, or had a valid reason to fail.
        damage: The cause of the job's end, if it names a damaged file or another real loss; else empty.
        external: Faults of the external world that really happened, by name.
    """

    output: Any = None
    problem: str = ""
    planned: tuple[PlannedFault, ...] = ()
    damage: str = ""
    external: Mapping[str, int] = field(default_factory=dict)

    @property
    def may_repeat(self) -> bool:
        """Whether the job has started from an older checkpoint, so its sinks may repeat rows."""
        return FaultKind.FELL_BACK in self.happened


@dataclass(frozen=True, slots=True)
class Course:
    """The settings that determine a run.

    Attributes:
        with_failures: Whether faults strike; otherwise only the interleaving differs from run to run.
        rescale: Whether a run with failures may change the parallelism.
        most_moves: Maximum moves after the faults have stopped.
        usual_moves: Moves of this job without failures; faults strike for about half to twice as many.
        external: The model of the external world, which each run copies.
        stop: How the job is stopped when it has read all of the external world; `None` if it ends itself.
    """

    seed: int
    with_failures: bool
    rescale: bool = True
    most_moves: int = 60_000
    usual_moves: int = 1_000
    faults: tuple[str, ...] = ()
    external: ExternalWorld | None = None
    stop: Stop | None = None


class UserSimulation:
    """One run of a user's job: builds it, runs it to its end and reads its output.

    The project's tests let a second job continue from a savepoint (`tests/simulated_jobs/continuation.py`).

    Args:
        write: Takes the lines of the trace.
    """

    def __init__(
        self,
        build: Callable[[], Any],
        output: Callable[..., Any],
        course: Course,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self.course = course
        # The draws of chaining and batch sizes, on which no job may depend.
        layout = Draws(course.seed).stream(13)
        self.chaining = layout.pick((True, True, False))
        self._draws = draws = Draws(course.seed).stream(0 if course.with_failures else 1)
        conditions = self.conditions(draws.stream(3))
        self.world = World(draws.below(1 << 60), conditions, write)
        self.external = None if course.external is None else copy.deepcopy(course.external)
        if self.external is not None:
            self._begin(self.external)
        self.job = UserJob(build_with(self.external, build), output, chaining=self.chaining)
        self._plan = self.planned(conditions)
        paces, rows = draws.stream(8), layout.stream(1).pick((1, 1, 1, 2, 0))
        # Batches are large only without failures, because a run must last until failures come.
        chunks = (1, 1, 2, 5) if course.with_failures or rows == 1 else (2, 5, 20)
        self._pace = Pace(paces.pick(chunks), paces.pick((0.001, 0.003, 0.01)), rows)

    def run(self) -> UserRun:
        try:
            return self._run()
        finally:
            self._close()

    def uncontrolled(self) -> tuple[Uncontrolled, ...]:
        """Find the uncontrolled inputs of the job, without running it."""
        try:
            return find_uncontrolled(self.job.graph)
        finally:
            self._close()

    def next_job(self, state: JobState) -> SimulatedJob | None:
        """Return the job that follows the first one, which has ended in this state; `None` for none."""
        return None

    def submitted(self, job_id: str, job: UserJob, settings: int) -> SimulatedJob:
        """Return a job as it is submitted; `settings` numbers the stream that draws its settings."""
        config = short_run_config(job.config, self._draws.stream(settings))
        # Faults of files need state in separate files.
        inline_limit = None if _OF_FILES.isdisjoint(self.course.faults) else 0
        graph, code = build_execution_graph(job.graph), job.code(self.world, self._pace)
        return SimulatedJob(job_id, graph, config, code, inline_limit=inline_limit)

    def _run(self) -> UserRun:
        world, plan = self.world, self._plan
        first = self.submitted(FIRST_JOB, self.job, 2)
        run = SimulatedRun(world, first, plan, most_moves=self.course.most_moves)
        if world.trace.is_on:
            for fault in plan.faults:
                world.trace.note("planned:", fault)
        try:
            state, cause = run.run_to_end(self.next_job)
        except StandstillError as error:
            problem = f"{error}\n{_NEVER_STOPPED if self.course.stop else _NEVER_ENDED}"
            return self._result(run, problem=problem)
        except Exception as error:  # users' code failed without an injected fault
            return self._result(run, problem=_describe(error))
        if state is JobState.FAILED and run.is_explained_by_damage(cause):
            world.counts.happened(FaultKind.FAILED_BY_DAMAGE)
            return self._result(run, damage=cause)
        if state is JobState.FAILED and self.external is not None:
            reason = cause + run.reason_of_the_end
            if self.external.explains(reason):
                self.external.run.happened[FAILED_BY_LOSS] += 1
                return self._result(run, damage=reason)
        if state is not JobState.FINISHED:
            return self._result(run, problem=f"the job has {state.value}: {cause}")
        return self._result(run, output=self.job.output())

    def _close(self) -> None:
        self.job.clean_up()
        if self.external is not None:
            self.external.end()

    def _begin(self, external: ExternalWorld) -> None:
        draws = self._draws.stream(10)
        external.begin(WorldContext(self.world, draws, with_failures=self.course.with_failures))
        self.world.when_calm(external.calm_down)
        self.world.external_explains = external.explains

    def _result(self, run: SimulatedRun, **found: Any) -> UserRun:
        happened = {} if self.external is None else dict(self.external.run.happened)
        return UserRun(**asdict(run.figures()), planned=self._plan.faults, external=happened, **found)

    def conditions(self, draws: Draws) -> Conditions:
        conditions = draw_conditions(draws)
        if not self.course.with_failures:
            return replace(conditions, repeats=0.0, stragglers=0.0)
        return replace(conditions, lasts=100 + self.course.usual_moves * draws.pick((1, 2, 2, 4)) // 2)

    def planned(self, conditions: Conditions) -> Plan:
        course, job, draws = self.course, self.job, self._draws
        plan = self._with_stop(Plan())
        if not course.with_failures:
            return plan
        faults = draw_faults(draws.stream(4), conditions.lasts)
        wishes = draws.stream(6)
        if course.rescale and job.rescalable and wishes.chance(0.5):
            faults += tuple(_rescale(wishes) for _ in range(wishes.between(1, 2)))
        faults += draw_chosen(draws.stream(9), course.faults, conditions.lasts)
        return replace(
            plan,
            faults=faults,
            uploading=job.uploading,
            rescalable=job.rescalable if course.rescale else (),
            strike_external=None if self.external is None else self.external.strike,
        )

    def _with_stop(self, plan: Plan) -> Plan:
        if self.course.stop is None:
            return plan
        assert self.external is not None, "simulate() takes stop= only with a world"
        may_stop, drain = self.external.has_been_read, self.course.stop == "drain"
        return replace(plan, stop_when=may_stop, drain=drain, insists=True)


def build_with(external: ExternalWorld | None, build: Callable[..., Any]) -> Callable[[], Any]:
    """The function that builds a job; with an external world, `build` takes the world of the run."""
    return build if external is None else lambda: (build(external), external)


def _rescale(draws: Draws) -> PlannedFault:
    moment = draws.pick(MOMENTS)
    occurrence = draws.below(_EARLY_MOVES) if moment is Moment.MOVE else draws.between(1, 3)
    return PlannedFault(FaultKind.RESCALED, moment, occurrence, draws.below(40))


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    cause = error.__cause__
    return text if cause is None else f"{text}\n  because of {type(cause).__name__}: {cause}"
