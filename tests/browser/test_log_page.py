"""The log: filters, what they find, following, and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.browser import PATIENCE
from serving.pipeline import PipelinePage, pipeline_page

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def written(browser: Any) -> Iterator[PipelinePage]:
    """A log of 700 lines; the first of them is older than the end that is shown without a filter."""
    with pipeline_page(browser) as pipeline:
        pipeline.write("INFO order: the oldest line")
        pipeline.write(*(f"INFO order: number {number}" for number in range(690)))
        pipeline.write("WARNING order: No (sum) of 7", vertex="enrich", subtask=0)
        pipeline.write("ERROR order: no (SUM) of 8", vertex="enrich", subtask=3)
        pipeline.write("printed", stream="out", vertex="enrich", subtask=3)
        pipeline.write("crashed", stream="err", vertex="enrich", subtask=3)
        pipeline.write("INFO master: hello", vertex="job-master", subtask=None)
        yield pipeline


@pytest.fixture
def log(written: PipelinePage) -> Any:
    """The view of the log, with its newest 500 lines."""
    page = written.show("log")
    expect(page.locator(".entry")).to_have_count(500)
    return page


def height_below(log: Any) -> float:
    """Pixels of the log behind what is in sight."""
    return float(
        log.get_by_role("log").evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight")
    )


def test_a_text_is_searched_in_all_of_the_log_and_marked(log: Any) -> None:
    log.get_by_label("Text").fill("no (sum) of")
    entries = log.locator(".entry")
    expect(entries).to_have_count(2)
    assert log.locator(".entry mark").all_inner_texts() == ["No (sum) of", "no (SUM) of"]
    log.get_by_label("Text").fill("oldest")
    expect(entries).to_have_count(1)
    expect(entries.first).to_contain_text("the oldest line")


def test_an_operator_and_one_of_its_subtasks_are_chosen(log: Any) -> None:
    entries = log.locator(".entry")
    log.get_by_label("Operator").select_option("enrich-1")  # in the chain of `enrich`
    expect(entries).to_have_count(4)
    log.get_by_label("Subtask").select_option("3")
    expect(entries).to_have_count(3)
    log.get_by_label("Operator").select_option("job-master")
    expect(entries).to_have_count(1)
    expect(log.get_by_label("Subtask")).to_have_count(0)
    expect(entries.first).to_contain_text("job-master INFO master: hello")


def test_a_filter_that_finds_nothing_says_so(log: Any) -> None:
    log.get_by_label("Text").fill("nowhere to be found")
    expect(log.get_by_role("log")).to_have_text("No line matches the filter.")


def test_a_job_without_lines_says_so(pipeline: PipelinePage) -> None:
    expect(pipeline.show("log").get_by_role("log")).to_have_text("There are no lines yet.")


def test_levels_have_colours(log: Any) -> None:
    log.get_by_label("Operator").select_option("enrich")
    expect(log.locator(".entry")).to_have_count(4)
    kinds = log.locator(".entry").evaluate_all("all => all.map((each) => each.className)")
    assert kinds == ["entry warning", "entry error", "entry other", "entry error"]
    shown = log.locator(".entry").evaluate_all("all => all.map((each) => getComputedStyle(each).color)")
    assert len(set(shown)) == 3


def test_the_log_follows_until_it_is_told_not_to(log: Any, written: PipelinePage) -> None:
    written.write("INFO order: followed")
    expect(log.locator(".entry").last).to_contain_text("followed")
    assert height_below(log) < 8
    log.get_by_label("Follow").uncheck()
    log.wait_for_timeout(300)  # an answer that was under way
    written.write("INFO order: while nobody follows")
    log.wait_for_timeout(1_500)
    expect(log.locator(".entry").last).to_contain_text("followed")
    log.get_by_label("Follow").check()
    expect(log.locator(".entry").last).to_contain_text("while nobody follows")
    expect(log.locator(".entry")).to_have_count(502)  # those that were there before have stayed
    assert height_below(log) < 8


def test_a_wheel_that_turns_up_pauses_before_the_log_has_moved(log: Any) -> None:
    """Else lines that arrive just then would move the log to its end again."""
    log.get_by_role("log").dispatch_event("wheel", {"deltaY": 100})
    expect(log.get_by_text("Paused, because you scrolled up.")).to_have_count(0)
    log.get_by_role("log").dispatch_event("wheel", {"deltaY": -100})
    expect(log.get_by_text("Paused, because you scrolled up.")).to_be_visible()


def test_scrolling_up_pauses_and_going_to_the_end_goes_on(log: Any, written: PipelinePage) -> None:
    log.get_by_role("log").hover()
    log.mouse.wheel(0, -600)
    expect(log.get_by_text("Paused, because you scrolled up.")).to_be_visible()
    log.wait_for_timeout(300)  # an answer that was under way, and the wheel's motion
    before = height_below(log)
    assert before > 100
    written.write("INFO order: while it is paused")
    log.wait_for_timeout(1_500)
    assert height_below(log) == before
    expect(log.get_by_label("Follow")).to_be_checked()
    log.get_by_role("button", name="Go to the end").click()
    expect(log.locator(".entry").last).to_contain_text("while it is paused")
    expect(log.get_by_text("Paused, because")).to_have_count(0)
    assert height_below(log) < 8
