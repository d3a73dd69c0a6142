"""Checkpoints of a running job: details while they go on, two on one scale, filters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.acting import measured, taken
from serving.browser import PATIENCE
from serving.live_page import LivePage

from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointStatus
from penstock.runtime.snapshot.ids import SubtaskId

expect.set_options(timeout=PATIENCE)


@pytest.fixture
def page(live: LivePage) -> Any:
    live.show("checkpoints")
    live.page.get_by_role("heading", name="History").wait_for()
    return live.page


def advance(live: LivePage, acknowledged: int, status: CheckpointStatus) -> None:
    """The running checkpoint continues."""
    subtasks = [each.subtask for each in live.job.current.subtasks]
    live.job.details[4] = {each: measured(each, 0.1) for each in subtasks[:acknowledged]}
    duration = 0.4 if status is CheckpointStatus.COMPLETED else None
    newest = taken(4, status=status, duration=duration, acknowledged=acknowledged)
    history = (*live.job.current.checkpoint_history[:-1], newest)
    live.job.current = replace(live.job.current, checkpoint_history=history)


def test_details_of_a_checkpoint_in_progress_go_on_with_it(page: Any, live: LivePage) -> None:
    live.button("4").click()
    expect(page.get_by_text("In progress, 1 of 6 subtasks so far.")).to_be_visible()
    advance(live, 3, CheckpointStatus.IN_PROGRESS)
    expect(page.get_by_text("In progress, 3 of 6 subtasks so far.")).to_be_visible()
    rows = page.get_by_role("region", name="Checkpoint 4 by subtask").locator("tbody tr")
    expect(rows).to_have_count(3)
    advance(live, 6, CheckpointStatus.COMPLETED)
    expect(rows).to_have_count(6)
    expect(page.get_by_text("subtasks so far")).to_have_count(0)
    expect(page.get_by_text("no longer known")).to_have_count(0)


def test_a_long_reason_takes_two_lines_until_the_checkpoint_is_picked(page: Any, live: LivePage) -> None:
    reason = "its process died: " + "Ray says at length why a process may have died. " * 12 + "The end."
    failed = taken(
        5,
        status=CheckpointStatus.FAILED,
        duration=1.0,
        failure=CheckpointFailureReason.JOB_FAILURE,
        detail=reason,
    )
    live.job.current = replace(
        live.job.current, checkpoint_history=(*live.job.current.checkpoint_history, failed)
    )
    shown = page.locator(".shortened").filter(has_text="Ray says at length")
    expect(shown).to_be_visible()
    height, line = shown.evaluate("(one) => [one.clientHeight, parseFloat(getComputedStyle(one).lineHeight)]")
    assert height < 2.5 * line
    live.button("5").click()
    expect(page.locator(".detail .notice.error")).to_contain_text("The end.")


def test_details_open_under_the_row_and_in_sight(page: Any, live: LivePage) -> None:
    many = tuple(taken(number) for number in range(1, 61))
    live.job.current = replace(live.job.current, checkpoint_history=many)
    expect(page.get_by_text("page 1 of 3")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    live.button("12").click()
    under = page.locator("tr.picked + tr.below .beside")
    expect(under).to_contain_text("The measurements of the subtasks are no longer known.")
    expect(under).to_be_in_viewport()
    live.button("12").click()
    expect(under).to_have_count(0)


def test_two_checkpoints_have_one_scale_and_bars_begin_after_the_start_delay(
    page: Any, live: LivePage
) -> None:
    live.button("1").click()
    live.button("3").click()
    expect(page.get_by_text("the bars reach to 1.4 s")).to_have_count(2)
    for title, delay in (("Checkpoint 1", 0.05), ("Savepoint 3", 0.4)):
        rows = page.get_by_role("region", name=f"{title} by subtask").locator("tbody tr")
        for vertex, start in (("lines", delay), ("count", 2 * delay)):
            bar = rows.filter(has_text=f"{vertex}[0]").locator(".spans")
            whole = bar.bounding_box()
            aligned = bar.locator(".alignment_duration").bounding_box()
            share = (aligned["x"] - whole["x"]) / whole["width"]
            assert share == pytest.approx(start / 1.42, abs=0.02), (title, vertex)
    assert not live.is_cut()


def test_subtasks_of_a_checkpoint_are_sorted_by_what_they_measured(page: Any, live: LivePage) -> None:
    live.button("1").click()
    table = page.get_by_role("region", name="Checkpoint 1 by subtask")
    expect(table.locator("tbody tr").first).to_contain_text("count[0]")
    head = table.get_by_role("button", name="Start")
    head.click()
    head.click()
    expect(table.locator("tbody tr").first).to_contain_text("lines[0]")
    expect(table.locator('th[aria-sort="ascending"]')).to_have_text("Start ▴")


def test_failed_ones_and_savepoints_are_found_and_say_why(page: Any, live: LivePage) -> None:
    rows = page.get_by_role("region", name="Checkpoints, the newest first").locator("tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_label("Show").select_option("failed")
    expect(rows).to_have_count(1)
    reason = "checkpoint expired: count[3] has not acknowledged within 9 s"
    expect(rows.first).to_contain_text(reason)
    live.button("2").click()
    expect(page.get_by_role("alert")).to_have_text(reason)
    page.get_by_label("Show").select_option("savepoints")
    expect(rows.first).to_contain_text("savepoint")
    expect(rows.first).to_contain_text("completed")


def test_the_summary_says_of_how_many_it_is(page: Any) -> None:
    expect(page.get_by_role("heading", name="Summary of the last 2")).to_be_visible()


def test_a_checkpoint_of_many_subtasks_is_shown_page_by_page(page: Any, live: LivePage) -> None:
    subtasks = [SubtaskId("count", index) for index in range(400)]
    live.job.details[1] = {each: measured(each, 0.1) for each in subtasks}
    live.button("1").click()
    details = page.locator(".detail")
    expect(details.get_by_text("page 1 of 16")).to_be_visible()
    expect(details.locator("tbody tr")).to_have_count(25)


def test_on_a_phone_details_are_as_wide_as_the_screen(page: Any, live: LivePage) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    live.button("1").click()
    expect(page.get_by_text("the bars reach to")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".beside").bounding_box()["width"] <= 390
