"""The simulation finds the bug of the example's sink, and passes the mended one."""

from __future__ import annotations

import pytest
from deep import DEEP
from simulated_sink import CarefulSink, HastySink, check

#: `python examples/simulated_sink.py` takes a thousand.
SEEDS = 100 * DEEP


def test_the_bug_is_found_as_rows_that_come_twice() -> None:
    report = check(HastySink, 1000)
    assert report.difference is not None
    assert report.difference.unexpected
    assert not report.difference.missing


@pytest.mark.simulation
def test_the_mended_sink_passes_a_hundred_seeds() -> None:
    report = check(CarefulSink, SEEDS)
    assert (report.passed, report.seeds) == (True, SEEDS)
