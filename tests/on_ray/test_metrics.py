"""Counters reach Prometheus by Ray's own metrics agent."""

from __future__ import annotations

import io
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from rich.console import Console

from penstock import (
    Checkpointing,
    DiscardSink,
    FunctionContext,
    GeneratorSource,
    ProcessFunction,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.actors.command_line.views import metrics_table
from penstock.cluster import RayJobHandle

_PATIENCE = 120.0


def exported() -> str:
    """The metrics that a Prometheus server would scrape from this node."""
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


class Measured(ProcessFunction[int, int]):
    """Measures what passes."""

    def open(self, ctx: FunctionContext) -> None:
        self.seen, self.newest, self.sizes = ctx.counter("seen"), ctx.gauge("newest"), ctx.histogram("sizes")

    def process(self, value: int, ctx: FunctionContext) -> Iterator[int]:
        self.seen.increment()
        self.newest.set(value)
        self.sizes.update(value)
        yield value


@pytest.mark.usefixtures("ray_cluster")
def test_records_checkpoints_and_attempts_are_exported_with_job_and_subtask(tmp_path: Path) -> None:
    env = StreamEnvironment("measured", checkpointing=Checkpointing(every=1.0, storage=str(tmp_path)))
    numbers = env.from_source("numbers", GeneratorSource(int, rate=100))
    seconds = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n * 1_000_000)
    numbers = numbers.assign_timestamps_and_watermarks(seconds)
    measured = numbers.process("measured", Measured())
    measured.key_by(lambda n: n % 10).reduce("sum", lambda a, b: a + b).sink("out", DiscardSink())
    job = env.submit()
    assert isinstance(job, RayJobHandle)
    wanted = {
        ("penstock_counter_seen_total", "numbers[0]"),
        ("penstock_gauge_newest", "numbers[0]"),
        *((f"penstock_histogram_sizes{part}", "numbers[0]") for part in ("", "_bucket", "_count", "_sum")),
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
    report = job.report()
    job.cancel()
    assert not missing
    own = report.statistics.operators["measured"]
    assert own.counters["seen"] > 0
    of_operator = [line for line in lines if 'operator="measured"' in line]
    assert any('quantile="0.99"' in line for line in of_operator)
    assert any('le="+Inf"' in line for line in of_operator)
    assert own.histograms["sizes"].quantile(1) == own.histograms["sizes"].greatest
    shown = io.StringIO()
    Console(file=shown, width=200).print(metrics_table(report))
    assert "newest" in shown.getvalue()
