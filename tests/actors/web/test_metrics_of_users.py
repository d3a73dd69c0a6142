"""Users' metrics over REST: counters, gauges, and the parts of histograms."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from serving.acting import JOB, acting_job
from serving.client import Client
from serving.in_thread import served
from serving.reports import TOKEN
from serving.scripted import ScriptedDirectory

from penstock.runtime.operators.metrics import Counter, Gauge, Histogram, Metrics, OperatorStatistics

PATH = f"/v1/jobs/{JOB}/vertices/count/metrics"


@pytest.fixture
def known() -> dict[str, Any]:
    """Values of the first subtask by name; the gauge `broken` is not a JSON number."""
    metrics = Metrics()
    metrics.ask(Counter, "large_orders").increment(7)
    metrics.ask(Gauge, "queue").set(2.5)
    metrics.ask(Gauge, "broken").set(float("nan"))
    for cents in range(1, 101):
        metrics.ask(Histogram, "cents").update(cents)
    job = acting_job()
    counted = OperatorStatistics(9, 8, extra={"late_records": 3}).with_metrics(metrics.statistics())
    subtasks = tuple(
        replace(each, statistics=replace(each.statistics, operators={"count": counted}))
        if each.subtask.vertex == "count" and each.subtask.index == 0 and each.statistics is not None
        else each
        for each in job.current.subtasks
    )
    job.current = replace(job.current, subtasks=subtasks)
    with served(ScriptedDirectory(job), token=TOKEN) as server:
        client = Client(server.address, TOKEN)
        names = [each["id"] for each in client.look(PATH)["metrics"]]
        found = client.look(f"{PATH}?get={','.join(names)}")["metrics"]
        body = client.get(f"/v1/jobs/{JOB}").body
    json.loads(body, parse_constant=pytest.fail)  # JSON in a browser has no NaN
    return {each["id"]: each["value"] for each in found}


def test_counters_and_gauges_have_their_numbers(known: dict[str, Any]) -> None:
    assert known["0.count.large_orders"] == 7
    assert known["0.count.queue"] == 2.5
    assert known["0.count.late_records"] == 3
    assert known["0.count.records_in"] == 9
    assert "0.count.broken" not in known


def test_histograms_have_their_quantiles(known: dict[str, Any]) -> None:
    parts = {name.removeprefix("0.count.cents_") for name in known if name.startswith("0.count.cents_")}
    assert parts == {"count", "sum", "min", "max", "mean", "p50", "p90", "p99"}
    assert (known["0.count.cents_count"], known["0.count.cents_sum"]) == (100, 5_050.0)
    assert (known["0.count.cents_min"], known["0.count.cents_max"]) == (1.0, 100.0)
    assert known["0.count.cents_p50"] == pytest.approx(50, rel=0.045)
    assert known["0.count.cents_p99"] == pytest.approx(99, rel=0.045)


def test_rates_are_numbers_too(known: dict[str, Any]) -> None:
    assert known["3.rate.busy"] == 0.95
