"""The thirty cases of another parallelism, each as a simulated job with failures: every record exactly once.

They also run by hand (`tests/properties/test_rescale_matrix.py`) and on Ray
(`tests/on_ray/test_rescaling.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import cycle

import pytest
from jobs.rescaling import CASES, Case
from simulated_jobs.cases import SHAPES, RescaledBy, rescale_scenario
from simulated_jobs.scenario import HandlerMode
from simulated_jobs.simulation import Simulation, SimulationResult

from penstock.runtime.job.job_state import JobState
from penstock.runtime.testing.simulation.cluster.master import FIRST_JOB, SECOND_JOB
from penstock.runtime.testing.simulation.world.faults import FaultKind

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Run:
    """A case, how its barriers are dealt with, and how it gets to its new parallelism."""

    case: Case
    mode: HandlerMode
    by: RescaledBy

    def __str__(self) -> str:
        return f"{self.case}, {self.mode.value}, {self.by.value}"

    @property
    def is_rescaled(self) -> bool:
        return self.case.old != self.case.new


def runs_of(case: Case) -> list[Run]:
    """At the same parallelism there is no rescale to request: another job starts."""
    if case.old == case.new:
        return [Run(case, mode, RescaledBy.NEW_JOB) for mode in (HandlerMode.ALIGNED, HandlerMode.UNALIGNED)]
    return [
        Run(case, HandlerMode.ALIGNED, RescaledBy.REQUEST),
        Run(case, HandlerMode.UNALIGNED, RescaledBy.REQUEST),
        Run(case, HandlerMode.UNALIGNED, RescaledBy.NEW_JOB),
    ]


RUNS = [run for case in CASES for run in runs_of(case)]
#: An unaligned job gets to its new parallelism in one way each time, in turn; the other way is long.
LONG = {
    Run(case, HandlerMode.UNALIGNED, by)
    for case, by in zip((case for case in CASES if case.old != case.new), cycle(RescaledBy))
}


#: Seeds that are tried until the parallelism really changes: a crash may come first, and the job is refused.
SEEDS = range(1, 6)


@cache
def simulated(run: Run) -> tuple[SimulationResult, Simulation]:
    case = run.case
    for seed in SEEDS:
        simulation = Simulation(rescale_scenario(case.shape, case.old, case.new, run.mode, run.by, seed))
        result = simulation.run()
        assert result.problems == (), seed
        if run.by is RescaledBy.NEW_JOB:
            break
        if FaultKind.RESCALED in result.happened and has_written_since(simulation, result, case.old):
            break
    return result, simulation


def test_all_thirty_cases_are_run_aligned_and_unaligned() -> None:
    assert len({(run.case, run.mode) for run in RUNS if run not in LONG}) == 60
    assert {case.shape for case in CASES} == set(SHAPES)


@pytest.mark.parametrize(
    "run", [pytest.param(run, id=str(run), marks=[pytest.mark.long] * (run in LONG)) for run in RUNS]
)
def test_a_job_with_failures_goes_on_exactly_once_at_another_parallelism(run: Run) -> None:
    result, simulation = simulated(run)
    assert result.problems == ()
    assert result.state is JobState.FINISHED
    happened = result.happened
    if run.by is RescaledBy.REQUEST:
        assert happened[FaultKind.RESCALED] == 1
    else:
        assert happened[FaultKind.STARTED_FROM_CHECKPOINT] == 1
        assert happened.get(FaultKind.STARTED_RESCALED, 0) == int(run.is_rescaled)
    # A process that is to die in front of its next effect may never have one: then the others die.
    assert happened.get(FaultKind.CRASH_IN_STEP, 0) + happened[FaultKind.CRASH] >= 2
    before, after = committed_by(simulation)
    assert before
    assert after
    assert before <= set(range(run.case.old))
    assert after <= set(range(run.case.new))
    assert parallelism(simulation, "keyed-4") == run.case.new


def test_data_in_flight_comes_up_at_another_parallelism_in_every_shape_and_either_direction() -> None:
    dealt_out = {
        run
        for run in RUNS
        if run not in LONG
        and run.is_rescaled
        and simulated(run)[0].happened.get(FaultKind.IN_FLIGHT_RESCALED)
    }
    assert {run.mode for run in dealt_out} == {HandlerMode.UNALIGNED}
    assert {run.case.shape for run in dealt_out} == set(SHAPES)
    assert {run.case.old < run.case.new for run in dealt_out} == {True, False}
    assert {run.by for run in dealt_out} == set(RescaledBy)


def has_written_since(simulation: Simulation, result: SimulationResult, old: int) -> bool:
    """Whether the sink still had something to write then; a request may come when all is written.

    A subtask that was not there before has written since, and so has any subtask in the last attempt.
    """
    transactions = simulation.system.transactions("sink-5")
    return any(subtask >= old or attempt == result.attempts for _, subtask, _, attempt, _ in transactions)


def committed_by(simulation: Simulation) -> tuple[set[int], set[int]]:
    """The subtasks of the sink that have written anything: in the first attempt of all, and in the last."""
    transactions = simulation.system.transactions("sink-5")
    order = [FIRST_JOB, SECOND_JOB]
    attempts = {(order.index(job), attempt) for _, _, job, attempt, _ in transactions}
    by_attempt = {
        at: {subtask for _, subtask, job, attempt, _ in transactions if (order.index(job), attempt) == at}
        for at in attempts
    }
    return by_attempt[min(attempts)], by_attempt[max(attempts)]


def parallelism(simulation: Simulation, vertex: str) -> int:
    scheduler = simulation.control.masters.last.scheduler
    return next(v.parallelism for v in scheduler.graph.vertices if v.id == vertex)
