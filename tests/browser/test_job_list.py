"""The list of jobs on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from serving.browser import PATIENCE, opened
from serving.in_thread import served
from serving.pipeline import JOB, pipeline_report
from serving.reports import leave, report_of

from penstock import JobStatus
from penstock.actors.web.server import JobDirectory

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def phone(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("storage")
    leave(folder, pipeline_report(status=JobStatus.FINISHED), report_of("hurt-9a8b", "hurt", folder))
    with served(JobDirectory(str(folder))) as server:
        login = f"{server.address}#token={server.access.new_login()}"
        with opened(browser, login, viewport={"width": 390, "height": 800}) as page:
            page.get_by_role("list", name="Jobs").wait_for()
            yield page


def test_all_figures_of_a_job_are_in_sight(phone: Any) -> None:
    row = phone.locator(".jobs > li").filter(has_text="orders")
    expect(row.locator(".status")).to_have_text("finished")
    for name in ("Records in", "Duration", "Last checkpoint", "Restarts"):
        expect(row.get_by_text(name, exact=True)).to_be_in_viewport(ratio=1)
    expect(row).to_contain_text("1 h 1 min")
    expect(row.locator("dl > div").filter(has_text="Ended")).to_contain_text("2023-11-15 00:31:40")
    expect(row).not_to_contain_text("/s")  # it reads nothing now
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_long_id_is_shortened_and_its_title_has_the_whole(phone: Any) -> None:
    expect(phone.get_by_title(JOB)).to_have_text("orders-01234567…")
    expect(phone.get_by_title("hurt-9a8b")).to_have_text("hurt-9a8b")


def test_rows_are_filtered_and_lead_to_the_job(phone: Any) -> None:
    phone.get_by_label("Name or id").fill("0123456789abcdef0")
    expect(phone.locator(".jobs > li")).to_have_count(1)
    assert Axe().run(phone).violations_count == 0
    phone.get_by_role("link", name="orders").click()
    expect(phone.locator("h1")).to_have_text("orders")
    phone.go_back()


def test_a_table_is_sorted_by_a_figure_and_states_have_their_numbers(phone: Any) -> None:
    """One job ran for 20 s with one restart, the other one for an hour without any."""
    phone.set_viewport_size({"width": 1000, "height": 800})
    table = phone.get_by_role("region", name="Jobs")
    names = table.locator("tbody a")
    expect(phone.get_by_label("State").locator("option")).to_have_text(["all", "failed (1)", "finished (1)"])
    expect(table.locator("tbody tr").filter(has_text="orders")).to_contain_text("2023-11-15 00:31:40")
    for heading, first in (
        ("Duration", "orders"),
        ("Ended", "orders"),
        ("Restarts", "hurt"),
        ("Job", "hurt"),
    ):
        table.get_by_role("button", name=heading).click()
        expect(names.first).to_have_text(first)
    phone.set_viewport_size({"width": 390, "height": 800})


def test_a_wide_window_has_a_table(phone: Any) -> None:
    phone.get_by_role("list", name="Jobs").wait_for()
    phone.set_viewport_size({"width": 1000, "height": 800})
    expect(phone.get_by_role("region", name="Jobs")).to_contain_text(JOB)
    phone.set_viewport_size({"width": 390, "height": 800})
