"""A job that is behind its topic: report, metrics, page and command line say by how much."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs.commands import Done, run_here
from jobs.driving import after_checkpoints, eventually, submit, wait_until
from serving.kafka import Broker, light_broker
from serving.kafka_topics import Record, create_topic, produce

from penstock import AdvancedConfig, Checkpointing, JobConfig, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle
from penstock.connectors import SourceLag
from penstock.kafka import KafkaSink, KafkaSource

pytestmark = pytest.mark.usefixtures("ray_cluster")

RECORDS = 30_000
SPLITS = {"orders[0]", "orders[1]"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with light_broker(tmp_path_factory.mktemp("kafka")) as started:
        create_topic(started.client(), "orders", 2)
        create_topic(started.client(), "out")
        some = (Record(json.dumps({"n": n}).encode(), partition=n % 2) for n in range(RECORDS))
        produce(started.client(), "orders", some)
        yield started


@pytest.fixture
def job(broker: Broker, tmp_path: Path) -> Iterator[RayJobHandle]:
    """Reads a hundred records a second of the many that there are."""
    checkpointing = Checkpointing(every=0.5, storage=str(tmp_path / "checkpoints"))
    config = JobConfig(checkpointing=checkpointing, advanced=AdvancedConfig(buffer_rows=16))
    env = StreamEnvironment("behind", parallelism=2, config=config)
    orders = env.from_source("orders", KafkaSource(broker.bootstrap, "orders"))
    orders.rate_limit(100).sink("out", KafkaSink(broker.bootstrap, "out"))
    running = submit(env)
    yield running
    running.cancel()


def lag_of(report: JobReport) -> SourceLag | None:
    counted = report.statistics.operators.get("orders")
    return None if counted is None else counted.lag


def command(*words: str, code: int = 0) -> Done:
    address = ("--address", ray.get_runtime_context().gcs_address)
    done = run_here("kafka", *words, *address)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def test_reports_metrics_and_commands_say_how_far_a_job_is_behind(
    job: RayJobHandle, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap)
    the_report_has_the_lag_of_each_partition_and_its_trend(job)
    prometheus_has_the_lag_and_what_the_connectors_count(job)
    the_command_line_compares_the_checkpoint_with_the_topic(job)
    transactions_of_a_running_job_are_not_aborted(job)
    the_lag_of_a_stopped_job_is_that_of_its_savepoint(job)


def the_report_has_the_lag_of_each_partition_and_its_trend(job: RayJobHandle) -> None:
    def is_known(report: JobReport) -> bool:
        lag = lag_of(report)
        trends = [info.rates.operators["orders"].lag_by_split for info in report.subtasks if info.rates]
        return lag is not None and {name for trend in trends for name in trend} == SPLITS

    lag = lag_of(wait_until(job, "a lag with a trend", is_known))
    assert lag is not None
    assert lag.records is not None
    assert 0 < lag.records <= RECORDS
    assert {split.split for split in lag.by_split} == SPLITS
    assert {split.end for split in lag.by_split} == {RECORDS // 2}


def prometheus_has_the_lag_and_what_the_connectors_count(job: RayJobHandle) -> None:
    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    wanted = {
        "penstock_pending_records": 'operator="orders"',
        "penstock_split_lag_records": 'split="orders[1]"',
        "penstock_counter_bytes_in_total": 'operator="orders"',
        "penstock_counter_bytes_out_total": 'operator="out"',
        "penstock_gauge_open_transactions": 'operator="out"',
        "penstock_committed_total": 'operator="out"',
    }

    def are_there() -> bool:
        with urllib.request.urlopen(address, timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if job.job_id in line]
        return all(any(name in line and tag in line for line in lines) for name, tag in wanted.items())

    eventually(f"{sorted(wanted)} in Prometheus", are_there)


@pytest.mark.browser
@pytest.mark.long
def test_the_page_has_a_table_of_partitions(job: RayJobHandle) -> None:
    from playwright.sync_api import expect
    from serving.browser import PATIENCE, browser, opened

    address = ray.get_runtime_context().gcs_address
    ui = [sys.executable, "-m", "penstock.actors.command_line", "ui", "--json", "--no-open", "--port", "0"]
    with subprocess.Popen([*ui, "--address", address], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        login = json.loads(server.stdout.readline())["login"]
        try:
            with browser() as started, opened(started, login) as page:
                expect.set_options(timeout=PATIENCE)
                page.goto(f"{login.split('#')[0]}#/jobs/{job.job_id}/subtasks/orders")
                rows = page.get_by_role("region", name="Lag of orders by split").locator("tbody tr")
                expect(rows).to_have_count(2)
                expect(rows.nth(0)).to_contain_text("15,000")
        finally:
            server.terminate()


def the_command_line_compares_the_checkpoint_with_the_topic(job: RayJobHandle) -> None:
    after_checkpoints(job, 2)
    found: Any = json.loads(command("lag", job.job_id, "--json").stdout)
    assert 0 < found["lag"] <= RECORDS
    assert [each["partition"] for each in found["partitions"]] == [0, 1]
    assert {each["operator_id"] for each in found["partitions"]} == {"orders"}
    assert all(each["end"] - each["position"] == each["lag"] for each in found["partitions"])


def transactions_of_a_running_job_are_not_aborted(job: RayJobHandle) -> None:
    listed: Any = []

    def has_begun() -> bool:
        done = run_here("kafka", "transactions", "list", "--prefix", f"penstock:{job.job_id}", "--json")
        listed[:] = json.loads(done.stdout)
        return bool(listed)

    eventually("an open transaction", has_begun)
    assert {each["operator_id"] for each in listed} == {"out"}
    # The newest one is not ended while the command looks at it.
    name = listed[-1]["transactional_id"]
    refused = command("transactions", "abort", name, "--yes", code=1).stderr
    assert "which runs" in refused or "has no open transaction" in refused


def the_lag_of_a_stopped_job_is_that_of_its_savepoint(job: RayJobHandle) -> None:
    saved = job.stop()
    of_job: Any = json.loads(command("lag", job.job_id, "--json").stdout)
    of_savepoint: Any = json.loads(command("lag", "--from", saved, "--json").stdout)
    assert of_job == of_savepoint
    assert of_job["lag"] > 0
    assert run_here("kafka", "transactions", "list", "--prefix", f"penstock:{job.job_id}").stdout == (
        "no open transactions\n"
    )
