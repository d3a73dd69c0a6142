"""The entry of a job in the list of jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from serving.reports import record
from serving.scripted import wide_report

from penstock.actors.client.jobs import KnownJob
from penstock.actors.web.answers import overview_of
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus, CoordinatorStatistics

#: Checkpoints that were triggered at the second of their id.
COMPLETED = [record(number, CheckpointStatus.COMPLETED, 2.0) for number in (30, 40)]
FAILED = record(50, CheckpointStatus.FAILED, 1.0)


@pytest.mark.parametrize(
    ("counted", "expected"),
    [(CoordinatorStatistics(latest_completed_at=43.0), 43.0), (CoordinatorStatistics(), 42.0), (None, 42.0)],
)
def test_the_last_checkpoint_is_known_from_the_history_where_the_counters_are_gone(
    counted: CoordinatorStatistics | None, expected: float
) -> None:
    report = replace(wide_report(2, 0), checkpoints=counted, checkpoint_history=(*COMPLETED, FAILED))
    assert overview_of(KnownJob(report, has_master=False))["last_checkpoint"] == expected


def test_a_job_without_a_completed_checkpoint_has_no_last_one() -> None:
    report = replace(wide_report(2, 0), checkpoints=None, checkpoint_history=(FAILED,))
    assert overview_of(KnownJob(report, has_master=False))["last_checkpoint"] is None
