"""A Prometheus server that scrapes a real job: each query of the dashboard and of the rules finds samples."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from jobs.backpressure import running
from jobs.commands import run_here
from jobs.driving import kill_subtask, submit, wait_until
from serving.prometheus import answers, scraping

from penstock import (
    Checkpointing,
    DiscardSink,
    FixedDelay,
    GeneratorSource,
    JobStatus,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.actors.command_line.monitoring import RULES

pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.prometheus,
    pytest.mark.timeout(600),
]

_PATIENCE = 240.0
NAME = "watched by prometheus"


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """A server that scrapes this node of Ray; its address."""
    node = ray.nodes()[0]
    with scraping(f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}", folder) as address:
        yield address


def queries() -> list[str]:
    """All queries of what the commands print, about the job of this test."""
    shown = json.loads(run_here("metrics", "grafana").stdout)
    of_panels = [target["expr"] for panel in shown["panels"] for target in panel["targets"]]
    found = [query.replace("$job_name", NAME).replace("$__rate_interval", "1m") for query in of_panels]
    return found + [rule.measured for rule in RULES]


def test_every_query_of_the_dashboard_and_of_the_rules_finds_samples_of_a_real_job(tmp_path: Path) -> None:
    env = StreamEnvironment(
        NAME,
        checkpointing=Checkpointing(every=0.5, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=3, delay=0.1),
    )
    numbers = env.from_source("numbers", GeneratorSource(int, rate=100))
    seconds = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n * 1_000_000)
    timed = numbers.assign_timestamps_and_watermarks(seconds)
    timed.key_by(lambda n: n % 10).reduce("sum", lambda a, b: a + b).sink("out", DiscardSink())
    job = submit(env)
    with prometheus(tmp_path) as address:
        wait_until(job, "a checkpoint", lambda report: report.statistics.completed_checkpoints > 0)
        frozen = next(each for each in job.processes() if each.subtask.vertex == "sum")
        os.kill(frozen.pid, signal.SIGSTOP)
        wait_until(job, "a checkpoint that waits", lambda report: running(report) is not None)
        kill_subtask(job, "sum")
        wait_until(
            job,
            "a restart",
            lambda report: report.statistics.restarts > 0 and report.status is JobStatus.RUNNING,
        )
        # Of a generator without an end nothing is left to read; the job of test_kafka_lag.py has a lag.
        missing = [query for query in queries() if "pending_records" not in query]
        deadline = time.monotonic() + _PATIENCE
        while missing and time.monotonic() < deadline:
            missing = [query for query in missing if not answers(address, query)]
            time.sleep(0.5)
        causes = answers(address, f'ray_penstock_job_failures_total{{exported_job="{job.job_id}"}}')
        sizes = answers(address, f'ray_penstock_job_state_bytes{{exported_job="{job.job_id}"}}')
    job.cancel()
    assert missing == []
    labels = [sample["metric"] for sample in causes]
    assert [(each["cause"], each["operator"], each["job_name"]) for each in labels] == [
        ("process", "sum", NAME)
    ]
    assert {each["metric"]["subtask"] for each in sizes} == {"numbers[0]", "sum[0]"}


@pytest.mark.long
def test_a_job_whose_first_checkpoint_never_comes_is_found_and_one_that_takes_none_is_not(
    tmp_path: Path,
) -> None:
    def slow(name: str, checkpointing: Checkpointing | None) -> StreamEnvironment:
        env = StreamEnvironment(name, checkpointing=checkpointing)
        env.from_source("numbers", GeneratorSource(int, rate=10)).sink("out", DiscardSink())
        return env

    never = Checkpointing(every=3_600, storage=str(tmp_path / "checkpoints"))
    jobs = [submit(slow("never", never)), submit(slow("takes none", None))]
    names = {job.name for job in jobs}
    (rule,) = (rule for rule in RULES if rule.name == "PenstockNoCheckpoint")

    def found(query: str) -> dict[str, str]:
        """Values by job; other tests have left some jobs."""
        values = {sample["metric"]["job_name"]: sample["value"][1] for sample in answers(address, query)}
        return {name: value for name, value in values.items() if name in names}

    late: dict[str, str] = {}
    with prometheus(tmp_path) as address:
        deadline = time.monotonic() + _PATIENCE
        while not (late and found("ray_penstock_job_running == 1").keys() == names):
            assert time.monotonic() < deadline, late
            time.sleep(0.5)
            late = found(f"{rule.measured} {rule.limit}")
    for job in jobs:
        job.cancel()
    assert late == {"never": "0"}
