"""Flink's stress test of unaligned checkpoints: five failures, and nothing lost, twice or out of order."""

from __future__ import annotations

import pytest
from simulated_jobs.cases import FAILURES, happened_failures, stress_scenario
from simulated_jobs.scenario import HandlerMode
from simulated_jobs.simulation import Simulation

from penstock.runtime.job.job_state import JobState
from penstock.runtime.testing.simulation.world.faults import FaultKind

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("parallelism", "mode"),
    [
        pytest.param(parallelism, mode, id=f"{parallelism}-{mode.value}", marks=[pytest.mark.long] * is_long)
        for mode in (HandlerMode.UNALIGNED, HandlerMode.ALIGNED_TIMEOUT)
        for parallelism in (1, 5, 20)
        for is_long in [parallelism == 20]
    ],
)
def test_five_failures_leave_nothing_lost_twice_or_out_of_order(parallelism: int, mode: HandlerMode) -> None:
    result = Simulation(stress_scenario(1, parallelism, mode)).run()
    assert result.problems == ()
    assert result.state is JobState.FINISHED
    assert happened_failures(result) == FAILURES
    assert result.happened[FaultKind.CRASH_IN_RESTART] == 1
    assert result.attempts == FAILURES + 1
    assert result.captured > 0


def test_five_failures_leave_nothing_lost_twice_or_out_of_order_when_alignments_store() -> None:
    result = Simulation(stress_scenario(1, 5, HandlerMode.STORED)).run()
    assert result.problems == ()
    assert result.state is JobState.FINISHED
    assert happened_failures(result) == FAILURES
    assert result.captured == 0
    assert result.stored > result.spilled > 0
