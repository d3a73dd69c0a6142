"""Counters reach Prometheus by Ray's own metrics agent."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest
import ray

from penstock.runtime import (
    Checkpointing,
    DiscardSink,
    GeneratorSource,
    StreamEnvironment,
    WatermarkStrategy,
)

_PATIENCE = 120.0


def exported() -> str:
    """What a Prometheus server would scrape from this node."""
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.usefixtures("ray_cluster")
def test_records_checkpoints_and_attempts_are_exported_with_job_and_subtask(tmp_path: Path) -> None:
    env = StreamEnvironment("measured", checkpointing=Checkpointing(every=0.2, storage=str(tmp_path)))
    numbers = env.from_source("numbers", GeneratorSource(int, rate=2_000))
    seconds = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n * 1_000_000)
    numbers = numbers.assign_timestamps_and_watermarks(seconds)
    numbers.key_by(lambda n: n % 10).reduce("sum", lambda a, b: a + b).sink("out", DiscardSink())
    job = env.submit()
    wanted = {
        ("penstock_records_in_total", "numbers[0]"),
        ("penstock_records_in_total", "sum[0]"),
        ("penstock_records_out_total", "numbers[0]"),
        ("penstock_checkpoints_total", "sum[0]"),
        ("penstock_attempts_total", "sum[0]"),
        ("penstock_current_watermark_seconds", "numbers[0]"),
        ("penstock_current_watermark_seconds", "sum[0]"),
        ("penstock_idle", "sum[0]"),
        ("penstock_job_checkpoints_completed_total", ""),
    }
    deadline = time.monotonic() + _PATIENCE
    missing = wanted
    while missing and time.monotonic() < deadline:
        lines = [line for line in exported().splitlines() if f'job="{job.job_id}"' in line]
        missing = {
            (name, subtask)
            for name, subtask in wanted
            if not any(name in line and (not subtask or f'subtask="{subtask}"' in line) for line in lines)
        }
        time.sleep(0.5)
    job.cancel()
    assert not missing
