"""Subtasks beside each other: all of it fits, and skew shows."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.browser import PATIENCE
from serving.live_page import LivePage
from serving.pipeline import PipelinePage, pipeline_report
from serving.reports import GRAPH

from penstock import JobStatus
from penstock.actors.shared.job_report import JobReport, SubtaskInfo
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.job.job_state import JobState, RescaleRecord, Transition
from penstock.runtime.operators.metrics import GaugeStatistics, Histogram, OperatorStatistics
from penstock.runtime.task.statistics import OperatorRates

expect.set_options(timeout=PATIENCE)


@pytest.fixture
def table(live: LivePage) -> Any:
    live.show("subtasks/count")
    table = live.page.get_by_role("region", name="Subtasks of count")
    expect(table.locator("tbody tr")).to_have_count(4)
    return table


def test_all_columns_fit_and_have_names_of_their_own(table: Any, live: LivePage) -> None:
    assert not live.is_cut()
    names = [each.strip() for each in table.locator("th").all_inner_texts()]
    assert len(set(names)) == len(names)
    assert {"State", "State size"} <= set(names)
    button = table.get_by_role("button", name="Flame graph of count[3]")
    expect(button).to_be_in_viewport(ratio=1)


def test_long_names_and_process_ids_fit_too(table: Any, live: LivePage) -> None:
    name = "sum-of-all-amounts-by-customer-and-day"
    vertex = replace(GRAPH.vertices[1], id=name)
    subtasks = tuple(
        replace(each, subtask=replace(each.subtask, vertex=name))
        for each in live.job.current.subtasks
        if each.subtask.vertex == "count"
    )
    live.job.current = replace(
        live.job.current, graph=replace(GRAPH, vertices=(vertex,), edges=()), subtasks=subtasks
    )
    expect(live.page.get_by_role("region", name=f"Subtasks of {name}")).to_contain_text(f"{name}[3]")
    assert not live.is_cut()


def test_a_skewed_vertex_says_where_and_by_how_much(table: Any, live: LivePage) -> None:
    said = live.page.locator(".skews")
    for words in (
        "Skewed: count[3] reads 3.5 times as many records as the average",
        "is busy 2.2 times as long",
        "holds 3.6 times as much state",
        "is 1 min 30 s of event time behind the furthest",
    ):
        expect(said).to_contain_text(words)
    marked = table.locator("tbody tr").filter(has=live.page.locator(".warn"))
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("count[3]")
    expect(marked).to_contain_text("in map function parse (job.py:12) for 12 s")


def test_an_even_vertex_says_so(live: LivePage) -> None:
    live.show("subtasks/lines")
    expect(live.page.locator(".skews")).to_have_text("Even: records, busy time, state, event time.")


def test_rows_are_sorted_and_stand_as_they_were_again(table: Any) -> None:
    first = table.locator("tbody tr").first
    head = table.get_by_role("button", name="Records in")
    head.click()
    expect(first).to_contain_text("count[3]")
    head.click()
    expect(first).to_contain_text("count[0]")
    head.click()
    expect(table.locator("th[aria-sort]")).to_have_count(0)


def test_a_vertex_has_curves_with_restarts_and_rescales_in_them(live: LivePage) -> None:
    now = time.time()
    again = Transition(JobState.FAILING, JobState.RESTARTING, now - 20, "its process died")
    rescaled = RescaleRecord(now - 10, 2, {"count": 2}, {"count": 4}, ended_at=now - 9)
    live.page.route("**/vertices/count/samples", lambda route: route.fulfill(json=earlier(now - 30)))
    live.job.current = replace(
        live.job.current, history=(*live.job.current.history, again), rescales=(rescaled,)
    )
    live.show("subtasks/count")
    curves = live.page.get_by_role("region", name="Curves of count")
    expect(curves.locator(".curve figcaption")).to_have_text(
        ["Records per second", "Share of the time, average of the subtasks", "Lag of the watermark"]
    )
    expect(curves.get_by_role("img", name="Records per second: in")).to_have_accessible_name(
        re.compile("; 1 restart, 1 rescale$")
    )
    expect(curves.locator(".marks")).to_contain_text("restart rescale")
    live.page.unroute("**/vertices/count/samples")


def test_each_operator_of_a_chain_has_a_curve_and_an_operator_alone_has_none(pipeline: PipelinePage) -> None:
    """The server has earlier samples; the source's filter lets fewer records pass from now on."""
    page = pipeline.show("subtasks/orders")
    curves = page.get_by_role("region", name="Curves by operator of orders")
    expect(curves.locator(".curve figcaption")).to_have_text(
        ["orders: Source(orders)", "orders-1: assign timestamps", "orders-2: filter(is_paid)"]
    )
    expect(curves.locator(".curve .values")).to_have_text(
        [re.compile("^out 5,000"), re.compile("^in 5,000out 5,000"), re.compile("^in 5,000out 5,000")]
    )
    pipeline.job.current = filtering(pipeline.job.current)
    expect(curves.locator(".curve .values").last).to_have_text(re.compile("^in 5,000out 800"))
    page = pipeline.show("subtasks/parse")
    expect(page.get_by_role("region", name="Curves of parse", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Curves by operator of parse")).to_have_count(0)


def test_each_operator_shows_what_it_has_counted_and_the_metrics_of_its_user(pipeline: PipelinePage) -> None:
    """A histogram of the values 2, 2 and 5; a gauge of two subtasks."""
    histogram = Histogram()
    for value in (2, 2, 5):
        histogram.update(value)
    counted = OperatorStatistics(
        1_200_345,
        900,
        records_skipped=3,
        extra={"late_records": 7, "price": histogram.statistics(), "cached": GaugeStatistics(4.0, 6.5, 10.5)},
    )
    statistics = JobStatistics(JobStatus.RUNNING, attempt=2, operators={"parse": counted})
    pipeline.job.current = pipeline_report(statistics=statistics)
    page = pipeline.show("subtasks/parse")
    row = page.get_by_role("region", name="Operators of parse").locator("tbody tr")
    expect(row.locator("td").nth(0)).to_contain_text("order_totals.py:20")
    expect(row.locator("td.number")).to_have_text(["1,200,345", "900"])
    expect(row.locator("li")).to_have_text(
        [
            "records_skipped 3",
            "cached 4 to 6.5",
            "late_records 7",
            "price 3 values, 2 to 5, average 3",
        ]
    )
    expect(page.get_by_text("Totals of attempt 2, over all subtasks.")).to_be_visible()


def test_a_chosen_metric_has_a_curve_until_it_is_removed(pipeline: PipelinePage) -> None:
    """A counter is drawn as a rate, a gauge with its least and its greatest value."""
    pipeline.job.current = counting(0, gauge=(4.0, 6.5))
    page = pipeline.show("subtasks/parse")
    curves = page.get_by_role("region", name="Curves of metrics of parse")
    choice = curves.get_by_label("Add a curve")
    expect(choice.locator("option")).to_have_text(["choose a metric", "parse: cached", "parse: late_records"])
    choice.select_option("parse: cached")
    choice.select_option("parse: late_records")
    cached, late = curves.locator(".curve").first, curves.locator(".curve").last
    expect(cached).to_contain_text("parse: cached, least and greatest of the subtasks")
    expect(cached.locator(".values")).to_have_text(re.compile(r"^greatest 6\.5least 4last"))
    expect(late).to_contain_text("parse: late_records, per second")
    pipeline.job.current = counting(1_000_000, gauge=(4.0, 8.0))
    expect(cached.locator(".values")).to_have_text(re.compile(r"^greatest 8least 4last"))
    expect(late.locator(".values")).to_have_text(
        re.compile(r"^per second [1-9]\d*(\.\d+)? k|^per second 1\.00 M")
    )
    expect(choice.locator("option")).to_have_count(1)
    curves.get_by_role("button", name="Remove the curve of parse: cached").click()
    expect(curves.locator(".curve")).to_have_count(1)
    expect(choice.locator("option")).to_have_text(["choose a metric", "parse: cached"])


def counting(late: int, gauge: tuple[float, float]) -> JobReport:
    """`parse` has a counter, and a gauge with these least and greatest values."""
    extra = {"late_records": late, "cached": GaugeStatistics(*gauge, sum(gauge))}
    operators = {"parse": OperatorStatistics(9, 9, extra=extra)}
    return pipeline_report(statistics=JobStatistics(JobStatus.RUNNING, attempt=1, operators=operators))


def filtering(report: JobReport) -> JobReport:
    """Each subtask of the source emits 400 records per second."""

    def changed(subtask: SubtaskInfo) -> SubtaskInfo:
        if subtask.rates is None or subtask.subtask.vertex != "orders":
            return subtask
        operators = {**subtask.rates.operators, "orders-2": OperatorRates(2_500.0, 400.0)}
        return replace(subtask, rates=replace(subtask.rates, operators=operators))

    return replace(report, subtasks=tuple(map(changed, report.subtasks)))


def earlier(at: float) -> dict[str, Any]:
    """The answer with one sample of that time."""
    figures = {"records_in": 5.0, "records_out": 5.0, "busy": 0.5, "backpressured": 0.0, "lag": 3.0}
    return {"samples": [{"at": at, **figures, "operators": {}}]}
