"""A Prometheus server that scrapes a real job: each query of the dashboard and of the rules finds samples."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from jobs.backpressure import running
from jobs.commands import run_here
from jobs.driving import kill_subtask, submit, wait_until

from penstock.actors.command_line.monitoring import RULES
from penstock.runtime import (
    Checkpointing,
    DiscardSink,
    FixedDelay,
    GeneratorSource,
    JobStatus,
    StreamEnvironment,
    WatermarkStrategy,
)

pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus (Debian has a package)"),
]

_PATIENCE = 120.0
NAME = "watched by prometheus"


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """A server that scrapes this node of Ray every second; its address."""
    node = ray.nodes()[0]
    target = f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}"
    config = folder / "prometheus.yml"
    scrape = {"job_name": "ray", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    config.write_text(json.dumps({"scrape_configs": [scrape]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        yield address
    finally:
        server.terminate()
        server.wait(30)


def answers(address: str, query: str) -> list[dict[str, object]]:
    """The samples that a query finds; none while the server starts."""
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return list(json.loads(answer.read())["data"]["result"])
    except (ConnectionError, urllib.error.URLError) as error:
        if isinstance(error, urllib.error.HTTPError):
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        return []


def queries() -> list[str]:
    """All queries of what the commands print, about the job of this test."""
    shown = json.loads(run_here("metrics", "grafana").stdout)
    of_panels = [target["expr"] for panel in shown["panels"] for target in panel["targets"]]
    found = [query.replace("$job_name", NAME).replace("$__rate_interval", "1m") for query in of_panels]
    return found + [rule.measured for rule in RULES]


def test_every_query_of_the_dashboard_and_of_the_rules_finds_samples_of_a_real_job(tmp_path: Path) -> None:
    env = StreamEnvironment(
        NAME,
        checkpointing=Checkpointing(every=0.2, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=3, delay=0.1),
    )
    numbers = env.from_source("numbers", GeneratorSource(int, rate=2_000))
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
        missing, deadline = queries(), time.monotonic() + _PATIENCE
        while missing and time.monotonic() < deadline:
            missing = [query for query in missing if not answers(address, query)]
            time.sleep(0.5)
        causes = answers(address, f'ray_penstock_job_failures_total{{exported_job="{job.job_id}"}}')
        sizes = answers(address, f'ray_penstock_job_state_bytes{{exported_job="{job.job_id}"}}')
    job.cancel()
    assert missing == []
    labels = [sample["metric"] for sample in causes]
    assert [(each["cause"], each["operator"], each["job_name"]) for each in labels] == [  # type: ignore[index]
        ("process", "sum", NAME)
    ]
    assert {each["metric"]["subtask"] for each in sizes} == {"numbers[0]", "sum[0]"}  # type: ignore[index]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian's package prometheus)")
def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(run_here("metrics", "rules").stdout)
    checked = subprocess.run(
        ["promtool", "check", "rules", str(rules)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout
