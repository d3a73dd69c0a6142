"""A thousand seeds: whole jobs with failures, each judged by an oracle that knows only the input."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from penstock.runtime.testing.simulation.runs import REPLAY, Summary, run_seeds
from penstock.runtime.testing.simulation.scenario import MODES

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]

PARTS = 10
SEEDS_IN_A_PART = 100


@cache
def part(number: int) -> tuple[Summary, tuple[str, ...]]:
    """Some of the seeds; every part is run once, whoever asks first."""
    lines: list[str] = []
    first = number * SEEDS_IN_A_PART
    summary = run_seeds(range(first, first + SEEDS_IN_A_PART), lines.append)
    return summary, tuple(lines)


@pytest.mark.parametrize("number", range(PARTS))
def test_nothing_is_lost_and_nothing_counts_twice_whatever_fails(number: int) -> None:
    summary, lines = part(number)
    assert not summary.failed, "\n".join(lines)
    assert summary.passed == SEEDS_IN_A_PART


def test_every_kind_of_failure_has_really_happened(record_property: Callable[[str, object], None]) -> None:
    total = Summary()
    for number in range(PARTS):
        summary, _ = part(number)
        total.passed += summary.passed
        total.failed += summary.failed
        total.moves += summary.moves
        total.captured += summary.captured
        total.restored += summary.restored
        total.counts.add(summary.counts.by_kind())
    record_property("shown", "\n".join(total.lines()))
    assert total.missing_kinds == []
    assert total.captured > 1000
    assert total.restored > 100


def test_seeds_pick_every_mode() -> None:
    assert {mode.value for mode in MODES} == {
        "aligned",
        "at_least_once",
        "unaligned",
        "aligned_timeout",
        "no_checkpoints",
    }


def test_failing_seed_says_how_to_see_it_again() -> None:
    assert REPLAY.format(seed=7) == "python -m penstock.runtime.testing.simulation --seed 7 --trace"
