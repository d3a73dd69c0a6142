"""The simulation finds the words that at least once repeats, and passes exactly once."""

from __future__ import annotations

import pytest
from deep import DEEP
from simulated_kafka import check

#: `python examples/simulated_kafka.py` takes a thousand.
SEEDS = 50 * DEEP


def test_words_are_repeated_at_least_once() -> None:
    report = check(1000, is_exact=False)
    assert report.difference is not None
    assert report.difference.unexpected
    assert not report.difference.missing


@pytest.mark.simulation
def test_each_word_is_written_once_in_fifty_seeds() -> None:
    report = check(SEEDS, is_exact=True)
    assert (report.passed, report.seeds) == (True, SEEDS)
