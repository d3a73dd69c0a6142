"""Windows whose combiner runs at the source, as in Spark's workers, under the failures of many seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from deep import DEEP
from simulated_jobs import columns
from simulated_jobs.scenario import draw_scenario
from simulated_jobs.simulation import Simulation, SimulationResult, Summary

from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.testing.simulation.world.faults import FaultKind

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

SEEDS = range(40 * DEEP)

#: The stream of the part; no other part draws from it.
_STREAM = 90


def result(seed: int) -> SimulationResult:
    """The scenario of a seed, with windows whose combiner runs at the source."""
    scenario, draws = draw_scenario(seed), Draws(seed).stream(_STREAM)
    part = replace(columns.draw_column_shape(draws), combines=True, length=draws.pick((3, 8)), at_source=True)
    return Simulation(replace(scenario, shape=replace(scenario.shape, columns=part))).run()


def test_windows_combined_at_the_source_come_out_once_whatever_fails(
    record_property: Callable[[str, object], None],
) -> None:
    """A reader that begins again puts its splits through the steps again; rescales move splits."""
    total = Summary()
    for seed in SEEDS:
        found = result(seed)
        assert found.problems == (), f"seed {seed}"
        total.add(found)
    kinds = {kind.value: total.counts[kind] for kind in FaultKind if total.counts[kind]}
    record_property("shown", f"windows combined at the source: {kinds}")
    assert sum(total.kills.values()) >= 20
    assert total.counts[FaultKind.RESCALED] >= 2


def test_a_repeated_task_that_cuts_other_frames_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then positions in a snapshot are those of other rows."""
    right, computed = columns.batches_at_source, Counter[tuple[columns.ColumnShape, int]]()

    def other_frames(shape: columns.ColumnShape, split: int) -> list[tuple[int, pa.RecordBatch]]:
        whole = right(shape, split)
        computed[shape, split] += 1
        if computed[shape, split] <= 2:  # for the number of batches, and for the first reader
            return whole
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "_BATCHES_OF_A_FRAME", 2)
            cut = right(shape, split)
        return [*cut, *whole[len(cut) :]][: len(whole)]

    monkeypatch.setattr(columns, "batches_at_source", other_frames)
    assert any(result(seed).problems for seed in SEEDS)
