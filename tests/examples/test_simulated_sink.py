"""The simulation finds the bug of the example's sink, and passes the mended one."""

from __future__ import annotations

import pytest
from simulated_sink import CarefulSink, HastySink, check


def test_the_bug_is_found_as_rows_that_come_twice() -> None:
    report = check(HastySink, 1000)
    assert report.difference is not None
    assert report.difference.unexpected
    assert not report.difference.missing


@pytest.mark.simulation
def test_the_mended_sink_passes_three_hundred_seeds() -> None:
    report = check(CarefulSink, 300)
    assert (report.passed, report.seeds) == (True, 300)
