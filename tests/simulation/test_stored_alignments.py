"""Jobs whose alignments store: processes die meanwhile, limits are met, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deep import DEEP
from simulated_jobs.cases import stored_alignment_scenario
from simulated_jobs.simulation import Simulation, Summary

from penstock.runtime.job.job_state import JobState
from penstock.runtime.testing.simulation.world.faults import FaultKind

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

SEEDS = range(12 * DEEP)


def test_kills_in_the_middle_of_stored_alignments_cost_nothing(
    record_property: Callable[[str, object], None],
) -> None:
    total = Summary()
    for seed in SEEDS:
        result = Simulation(stored_alignment_scenario(seed)).run()
        assert result.problems == (), f"seed {seed}"
        assert result.state is JobState.FINISHED
        total.add(result)
    happened = total.counts
    record_property(
        "shown",
        f"killed in the middle of a stored alignment: {happened[FaultKind.CRASH_WHILE_STORED]}; "
        f"alignments that stored: {total.stored}, on disk: {total.spilled}; "
        f"over the limit: {happened[FaultKind.ALIGNMENT_LIMIT]}; "
        f"without room: {happened[FaultKind.NO_ROOM]}",
    )
    assert happened[FaultKind.CRASH_WHILE_STORED] >= 20
    assert total.stored > total.spilled > 10
    assert happened[FaultKind.ALIGNMENT_LIMIT] > 0
    assert happened[FaultKind.NO_ROOM] > 0
