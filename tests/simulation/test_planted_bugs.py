"""Bugs that are planted on purpose are found; see docs/testing.md for after how many seeds."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from planted_bugs import (
    PLANTED,
    Plant,
)

from penstock.runtime.testing.simulation.runs import run_seed
from penstock.runtime.testing.simulation.simulation import SimulationResult

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(3000)]

#: No bug may hide from more runs, ...
MOST_RUNS: Final = 1000

#: ... and the middle one not from so many.
MIDDLE: Final = 100

#: The first seed that finds each bug (docs/testing.md); `--run-long` looks for all of them again.
FOUND_BY: Final[dict[Plant, int]] = {FOUND_TABLE}


def first_failure(*first: int) -> SimulationResult | None:
    """The first run that fails; `None` for none.

    Args:
        first: Seeds to run before those from 0 on.
    """
    seeds = islice(chain(first, range(MOST_RUNS)), MOST_RUNS)
    return next((result for result in map(run_seed, seeds) if not result.passed), None)


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found_by_its_seed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    # The seed finds it until seeds mean other runs; then the others are tried.
    result = first_failure(FOUND_BY[plant])
    assert result is not None, f"not found in {MOST_RUNS} runs"
    monkeypatch.undo()
    assert run_seed(result.seed).passed, "the seed fails without the planted bug, too"
    print(f"{plant.__name__} was found by seed {result.seed}: {result.problems[0][:300]}")


@pytest.mark.long
def test_every_planted_bug_is_found_soon() -> None:
    found: dict[str, int | None] = {}
    for plant in PLANTED:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            result = first_failure()
        found[plant.__name__] = None if result is None else result.seed
        print(plant.__name__, found[plant.__name__])
    assert None not in found.values()
    assert median(seed for seed in found.values() if seed is not None) < MIDDLE
    assert found == {plant.__name__: seed for plant, seed in FOUND_BY.items()}, "seeds mean other runs now"


def test_thirty_bugs_and_more_are_planted() -> None:
    assert list(FOUND_BY) == list(PLANTED)
    assert len(PLANTED) >= 30
    assert max(FOUND_BY.values()) < MOST_RUNS
    assert median(FOUND_BY.values()) < MIDDLE


def test_the_guide_says_after_how_many_seeds_each_bug_was_found() -> None:
    guide = Path(__file__).parents[2] / "docs" / "testing.md"
    _, _, section = guide.read_text(encoding="utf-8").partition("### Planted bugs")
    rows = [line.split("|") for line in section.partition("###")[0].splitlines() if line.startswith("| ")]
    said = [int(cells[2].split()[0].replace(",", "")) for cells in rows[2:]]
    assert said == [seed + 1 for seed in FOUND_BY.values()]
