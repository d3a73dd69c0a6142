"""The processes of a job, by node."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.browser import PATIENCE
from serving.pipeline import PipelinePage, pipeline_report

from penstock.actors.shared.job_report import JobMasterProcess, JobReport, SubtaskProcess

expect.set_options(timeout=PATIENCE)

NODES = ("a1" * 28, "b2" * 28)


def placed_report() -> JobReport:
    """The JobMaster and the first subtask of each vertex are on one node, the others on another one."""
    report = pipeline_report(master=JobMasterProcess(99, NODES[0], 0))

    def placed(number: int, subtask: Any) -> Any:
        node = NODES[0 if subtask.subtask.index == 0 else 1]
        return replace(
            subtask, process=SubtaskProcess(subtask.subtask, 100 + number, node), state_bytes=2 * 1024
        )

    return replace(report, subtasks=tuple(placed(*each) for each in enumerate(report.subtasks)))


@pytest.fixture
def table(pipeline: PipelinePage) -> Any:
    pipeline.job.current = placed_report()
    return pipeline.show("nodes").get_by_role("region", name="Processes by node")


def test_each_node_has_its_totals_and_its_processes(table: Any) -> None:
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(11)
    expect(rows.nth(0)).to_have_text(
        re.compile(r"^a1a1a1a1" + "4" + r"8,700/s" + r"8\.00 KiB" + "99" + "JobMaster")
    )
    expect(rows.nth(1)).to_have_text(re.compile(r"^100orders\[0\]running20 %70 %2,500/s2\.00 KiB$"))
    expect(rows.nth(5)).to_have_text(
        re.compile(r"^b2b2b2b2" + "6" + r"11\.2 k/s" + r"12\.0 KiB" + r"101orders\[1\]")
    )
    assert table.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_a_process_leads_to_its_subtask(table: Any, pipeline: PipelinePage) -> None:
    table.get_by_role("link", name="enrich[3]").click()
    picked = pipeline.page.get_by_role("region", name="Subtasks of enrich").locator("tr.picked")
    expect(picked).to_contain_text("enrich[3]")


def test_subtasks_without_a_process_are_counted(pipeline: PipelinePage) -> None:
    report = placed_report()
    first = replace(report.subtasks[0], process=None)
    pipeline.job.current = replace(report, subtasks=(first, *report.subtasks[1:]))
    expect(pipeline.show("nodes").get_by_text("1 subtask has no process.")).to_be_visible()
    pipeline.job.current = pipeline_report()
    expect(pipeline.page.get_by_text("No process of this job is known.")).to_be_visible()
