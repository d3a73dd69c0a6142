"""The report of a running job: rates, the bottleneck, the fill of edges, and the user's line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from jobs.commands import run_here
from jobs.driving import submit, wait_until

from penstock import AdvancedConfig, Checkpointing, DiscardSink, GeneratorSource, JobConfig, StreamEnvironment
from penstock.cluster import JobReport

pytestmark = pytest.mark.usefixtures("ray_cluster")


def enrich(number: int) -> int:
    time.sleep(0.002)
    return number


def test_a_slow_operator_is_named_as_the_bottleneck(tmp_path: Path) -> None:
    env = StreamEnvironment(
        "slow",
        config=JobConfig(advanced=AdvancedConfig(buffer_rows=20, credits=2)),
        checkpointing=Checkpointing(every=0.5, storage=str(tmp_path)),
    )
    numbers = env.from_source("numbers", GeneratorSource(int))
    numbers.rebalance().map(enrich, id="enrich").sink("out", DiscardSink())
    job = submit(env)

    def is_seen(report: JobReport) -> bool:
        bottleneck, vertices = report.bottleneck, {vertex.id: vertex for vertex in report.vertices}
        return (
            bottleneck is not None
            and bottleneck.waiting == ("numbers",)
            and vertices["enrich"].state_bytes is not None
        )

    report = wait_until(job, "bottleneck", is_seen)
    shown = json.loads(run_here("status", job.job_id, "--json").stdout)
    job.cancel()
    assert report.bottleneck is not None
    assert report.bottleneck.vertex == "enrich"
    assert str(report.bottleneck).endswith("`numbers` waits for it.")
    vertices = {vertex.id: vertex for vertex in report.vertices}
    assert vertices["enrich"].records_in
    assert [(edge.source, edge.target) for edge in report.edges] == [("numbers", "enrich")]
    assert shown["bottleneck"]["vertex"] == "enrich"
    operators = {each["id"]: each for vertex in shown["graph"]["vertices"] for each in vertex["operators"]}
    assert operators["enrich"]["defined_at"]["file"].endswith("test_job_reports.py")
