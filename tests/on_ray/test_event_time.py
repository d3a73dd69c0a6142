"""Idle sources and sources that wait for each other, in real processes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from jobs.driving import finish, submit, wait_until
from jobs.quiet_numbers import QuietNumbers, add, moment, third
from jobs.words import environment

from penstock import CollectSink, WatermarkStrategy
from penstock.actors.client.collect import RayCollector
from penstock.cluster import JobReport
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.windows import TumblingEventTimeWindows

pytestmark = pytest.mark.usefixtures("ray_cluster")

LONG, SHORT = 20_000, 500


def test_idle_sources_hold_nobody_up_and_fast_ones_wait_for_slow_ones(tmp_path: Path) -> None:
    release, results = str(tmp_path / "go"), RayCollector()
    env = environment(tmp_path)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(moment)
    aligned = strategy.with_alignment("numbers", max_drift=timedelta(seconds=2), interval=0.1)
    even = env.from_source("even", QuietNumbers(0, LONG, release), watermarks=aligned)
    odd = env.from_source("odd", QuietNumbers(1, SHORT, release), watermarks=aligned)
    quiet = env.from_source("quiet", QuietNumbers(0, 0, release), watermarks=aligned.with_idleness(0.2))
    windows = even.union(odd, quiet).key_by(third).window(TumblingEventTimeWindows(0.5))
    windows.reduce("sums", add).sink("out", CollectSink(results))
    job = submit(env)

    def is_settled(report: JobReport) -> bool:
        """The quiet source is idle, the fast one is paused, and event time is that of the slow one."""
        known = {each.subtask.vertex: each.statistics for each in report.subtasks}
        even, odd, quiet, sums = (known.get(name) for name in ("even", "odd", "quiet", "sums"))
        if even is None or odd is None or quiet is None or sums is None:
            return False
        slowest = moment(2 * SHORT - 1) - 1
        return (
            quiet.is_idle
            and even.is_paused
            and (odd.current_watermark, sums.current_watermark) == (slowest, slowest)
        )

    settled = wait_until(job, "pause of the fast source", is_settled)
    ahead = _statistics(settled, "even").current_watermark
    assert ahead is not None
    assert ahead < moment(2 * LONG) - 1, "it has read all"
    Path(release).touch()
    finish(job)

    expected: Counter[tuple[int, int]] = Counter()
    for number in [*range(0, 2 * LONG, 2), *range(1, 2 * SHORT, 2)]:
        expected[third(number), number // 500] += number
    assert sorted(results.rows()) == sorted(expected.values())


def _statistics(report: JobReport, vertex: str) -> SubtaskStatistics:
    (found,) = [each.statistics for each in report.subtasks if each.subtask.vertex == vertex]
    assert found is not None
    return found
