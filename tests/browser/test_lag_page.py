"""The page shows the lag of a source, in all and by split with its trend; and the last commit of a sink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from playwright.sync_api import expect
from serving.browser import PATIENCE
from serving.live_page import LivePage

from penstock.actors.shared.job_report import JobReport, SubtaskInfo
from penstock.connectors import LastCommit, SourceLag, SplitLag, VersionLag
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.task.statistics import OperatorRates

expect.set_options(timeout=PATIENCE)


def split(name: str, records: int) -> SplitLag:
    return SplitLag(name, records, position=1_000, end=1_000 + records)


#: What each subtask of `lines` has left, and how that grows.
LEFT: dict[int, tuple[SourceLag, dict[str, float]]] = {
    0: (
        SourceLag.of([split("orders[0]", 1_200), split("orders[2]", 0)]),
        {"orders[0]": -20.0, "orders[2]": 0.0},
    ),
    1: (SourceLag.of([split("orders[1]", 34_000)]), {"orders[1]": 120.0}),
}


def behind(report: JobReport, left: dict[int, tuple[SourceLag, dict[str, float]]]) -> JobReport:
    """The report of a job whose source has a lag."""

    def of(info: SubtaskInfo) -> SubtaskInfo:
        if info.subtask.vertex != "lines" or info.statistics is None or info.rates is None:
            return info
        lag, growth = left[info.subtask.index]
        rates = OperatorRates(0.0, 0.0, sum(growth.values()), None, growth)
        counted = OperatorStatistics(lag=lag)
        return replace(
            info,
            statistics=replace(info.statistics, operators={"lines": counted}),
            rates=replace(info.rates, operators={"lines": rates}),
        )

    (first, _), (second, _) = left[0], left[1]
    both = OperatorStatistics(lag=first.plus(second))
    statistics = replace(report.statistics, operators={"lines": both})
    return replace(report, statistics=statistics, subtasks=tuple(map(of, report.subtasks)))


def table(live: LivePage) -> Any:
    return live.page.get_by_role("region", name="Lag of lines by split")


def test_each_split_has_its_lag_and_trend(live: LivePage) -> None:
    live.job.current = behind(live.job.current, LEFT)
    live.show("subtasks/lines")
    rows = table(live).locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text(
        "orders[0]lines[0]1,0002,2001,200shrinks by 20/s, gone in about 1 min 0 s"
    )
    expect(rows.nth(1)).to_contain_text("orders[2]lines[0]1,0001,0000stays")
    expect(rows.nth(2)).to_contain_text("orders[1]lines[1]1,00035,00034,000grows by 120/s")
    in_all = live.page.get_by_label("Lag of lines", exact=True).get_by_role("status")
    expect(in_all).to_have_text("35,200 records, grows by 100/s; 3 splits")
    table(live).get_by_role("button", name="Lag").click()
    expect(rows.nth(0)).to_contain_text("orders[1]")
    assert not live.is_cut()


def test_bytes_are_shown_where_records_are_not_known(live: LivePage) -> None:
    file = SourceLag(None, 3 * 1024**3, 12, (SplitLag("orders/a.jsonl", bytes=1024**2),))
    live.job.current = behind(
        live.job.current, {0: (file, {"orders/a.jsonl": -1024.0}), 1: (SourceLag.of(()), {})}
    )
    live.show("subtasks/lines")
    row = table(live).locator("tbody tr")
    expect(row).to_contain_text("orders/a.jsonllines[0]\u2013\u20131.00 MiBshrinks by 1.00 KiB/s")
    in_all = live.page.get_by_label("Lag of lines", exact=True).get_by_role("status")
    expect(in_all).to_have_text("3.00 GiB; 12 splits")


def test_a_vertex_without_a_lag_shows_none(live: LivePage) -> None:
    live.show("subtasks/count")
    expect(live.page.get_by_role("region", name="Subtasks of count")).to_be_visible()
    expect(live.page.get_by_role("heading", name="Left to read")).to_have_count(0)


def test_the_version_of_a_table_is_shown_with_the_versions_after_it(live: LivePage) -> None:
    read = SourceLag.of((), VersionLag("41", "1041", 1_000))
    live.job.current = behind(live.job.current, {0: (read, {}), 1: (SourceLag.of(()), {})})
    live.show("subtasks/lines")
    in_all = live.page.get_by_label("Lag of lines", exact=True).get_by_role("status")
    expect(in_all).to_have_text("version 41, 1,000 behind the newest, 1041; 0 records, stays; 0 splits")


def test_the_last_commit_of_a_sink_is_shown_with_its_operator(live: LivePage) -> None:
    report = live.job.current
    vertex = report.graph.vertices[-1]
    made = LastCommit("12", 1_500, 3, checkpoint_id=40, at=7_200.0)
    operators = {vertex.operators[-1].id: OperatorStatistics(last_commit=made)}
    live.job.current = replace(report, statistics=replace(report.statistics, operators=operators))
    live.show(f"subtasks/{vertex.id}")
    row = live.page.get_by_role("region", name=f"Last commit of {vertex.id}").locator("tbody tr")
    expect(row).to_contain_text(f"{vertex.operators[-1].id}121,5003401970-01-01")
    assert not live.is_cut()
