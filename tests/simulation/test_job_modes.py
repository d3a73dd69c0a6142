"""Settings that only some seeds draw, each in jobs whose processes die at places that a seed chooses.

The same settings run on Ray in `tests/on_ray/test_concurrent_checkpoints.py` and
`tests/on_ray/test_unaligned_savepoints.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice, pairwise
from random import Random
from typing import Final

import pytest
from deep import DEEP
from simulated_jobs.cases import stress_scenario
from simulated_jobs.handover import SecondJob, StartFrom
from simulated_jobs.scenario import HandlerMode, Scenario, draw_scenario
from simulated_jobs.simulation import Simulation, Summary

from penstock.runtime.job.job_state import SchedulerStatistics
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

KILLS: Final = (
    FaultKind.CRASH,
    FaultKind.CRASH_IN_STEP,
    FaultKind.CRASH_IN_UPLOAD,
    FaultKind.CRASH_IN_RESTART,
    FaultKind.MASTER_CRASH,
)


def full_failover() -> Iterator[Scenario]:
    """Jobs of every exactly-once mode; a failure restarts all of them."""
    for seed in count():
        drawn = draw_scenario(seed)
        if drawn.mode in (HandlerMode.ALIGNED, HandlerMode.UNALIGNED, HandlerMode.ALIGNED_TIMEOUT):
            yield replace(drawn, config=replace(drawn.config, failover="full"))


def two_checkpoints_at_a_time() -> Iterator[Scenario]:
    """Jobs with aligned checkpoints, which follow each other quickly."""
    for seed in count():
        drawn = draw_scenario(seed)
        if drawn.mode is HandlerMode.ALIGNED:
            assert drawn.config.checkpointing is not None
            two = replace(drawn.config.checkpointing, max_concurrent=2, min_pause=0.0, every=0.003)
            yield replace(drawn, config=replace(drawn.config, checkpointing=two))


def saved_and_stopped_under_back_pressure() -> Iterator[Scenario]:
    """Unaligned jobs: processes die in a savepoint and in a stop; the next job starts from the savepoint."""
    for seed in count():
        chance = Random(seed)
        parallelism = chance.randint(1, 3)
        mode = chance.choice((HandlerMode.UNALIGNED, HandlerMode.ALIGNED_TIMEOUT))
        pressed = stress_scenario(seed, parallelism, mode)
        stop = (FaultKind.STOPPED, FaultKind.DRAINED)[seed % 2]
        faults = [
            PlannedFault(what, Moment.COMPLETED, number, delay)
            for number, what in ((1, FaultKind.SAVEPOINT), (2, stop), (4, FaultKind.SAVEPOINT))
            for what, delay in ((what, 5), (chance.choice(KILLS[:2]), 6 + chance.randrange(150)))
        ]
        faults.append(PlannedFault(FaultKind.MASTER_CRASH, Moment.TRIGGERED, chance.randint(3, 9)))
        heads = [vertex.head.id for vertex in pressed.shape.vertices]
        wanted = {head: chance.randint(1, 3) for head in heads if chance.random() < 0.5}
        yield replace(
            pressed, faults=tuple(faults), second=SecondJob(StartFrom.NEWEST, wanted, is_moved=True)
        )


class Runs:
    """Some scenarios, run; each must leave everything exactly once, and eight processes must die.

    Args:
        number: At least so many are run.
        kinds: And so many more that each of these has happened twice.

    Attributes:
        overlaps: Checkpoints that were triggered while another one ran.
    """

    def __init__(self, scenarios: Iterator[Scenario], number: int, kinds: Sequence[FaultKind] = ()) -> None:
        summary, self.overlaps = Summary(), 0
        for made, scenario in enumerate(islice(scenarios, 10 * number)):
            self.happened = dict(summary.counts)
            if made >= number and all(self.happened.get(kind, 0) >= 2 for kind in kinds):
                break
            simulation = Simulation(scenario)
            result = simulation.run()
            assert result.problems == (), scenario.seed
            summary.add(result)
            self.overlaps += overlaps(simulation.control.masters.last.scheduler.statistics())
        self.captured = summary.captured
        self.shown = "\n".join([*summary.lines(), f"checkpoints beside another one: {self.overlaps}"])
        assert [kind for kind in kinds if self.happened.get(kind, 0) < 2] == []
        assert sum(self.happened.get(kind, 0) for kind in KILLS) >= 8


def overlaps(statistics: SchedulerStatistics) -> int:
    """Checkpoints of the history that were triggered before the one in front of them had ended."""
    return sum(
        first.attempt == second.attempt and second.triggered_at < first.triggered_at + (first.duration or 0.0)
        for first, second in pairwise(statistics.checkpoint_history)
    )


def test_failures_that_restart_the_whole_job_cost_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    record_property("shown", Runs(full_failover(), 20 * DEEP).shown)


def test_failures_while_two_checkpoints_run_cost_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    runs = Runs(two_checkpoints_at_a_time(), 14 * DEEP)
    record_property("shown", runs.shown)
    assert runs.overlaps >= 10


def test_failures_in_savepoints_and_stops_of_unaligned_jobs_under_back_pressure_cost_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    kinds = (
        FaultKind.SAVEPOINT,
        FaultKind.STOPPED,
        FaultKind.DRAINED,
        FaultKind.STARTED_FROM_SAVEPOINT,
        FaultKind.STARTED_RESCALED,
    )
    runs = Runs(saved_and_stopped_under_back_pressure(), 8 * DEEP, kinds)
    record_property("shown", runs.shown)
    assert runs.captured > 50
