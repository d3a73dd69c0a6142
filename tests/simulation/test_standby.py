"""Jobs with standby processes under the failures of all seeds: such processes take roles, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from deep import DEEP
from simulated_jobs.scenario import draw_scenario
from simulated_jobs.simulation import Simulation

from penstock.runtime.execution.fleet import StandbyPool
from penstock.runtime.execution.processes import ProcessId, ProcessSpec

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

SEEDS = range(24 * DEEP)


def test_jobs_with_a_standby_process_are_exactly_once_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    taken: list[ProcessId] = []
    take = StandbyPool.take

    def counting(pool: StandbyPool, spec: ProcessSpec) -> ProcessId | None:
        process = take(pool, spec)
        taken.extend([] if process is None else [process])
        return process

    monkeypatch.setattr(StandbyPool, "take", counting)
    for seed in SEEDS:
        scenario = draw_scenario(seed)
        result = Simulation(replace(scenario, config=replace(scenario.config, standby=1))).run()
        assert result.problems == (), f"seed {seed}"
    record_property("shown", f"roles that a standby process took: {len(taken)}")
    assert len(taken) >= 2
