"""The page in a real browser, with jobs that have ended and with one whose reports are written here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from serving.browser import PATIENCE, opened
from serving.in_thread import served
from serving.scripted import ScriptedDirectory, ScriptedJob, wide_report, with_busy

from penstock.actors.client.logs import LogLine
from penstock.actors.web.server import JobDirectory, WebServer

expect.set_options(timeout=PATIENCE)

VIEWS = ["graph", "subtasks", "nodes", "checkpoints", "failures", "log", "state", "timeline", "configuration"]


def show(page: Any, server: WebServer, view: str, job: str = "words-1f2e") -> None:
    page.goto(f"{server.address}#/jobs/{job}/{view}")
    page.locator(f'.tabs a[aria-current="page"][href$="/{view}"]').wait_for()


def test_jobs_are_listed_and_found_by_name_and_state(page: Any) -> None:
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Name or id").fill("word")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("words-1f2e")
    page.get_by_label("Name or id").fill("")
    page.get_by_label("State").select_option("finished")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("hurt-9a8b")


def test_the_token_leaves_the_address_at_once(page: Any) -> None:
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""  # out of reach for scripts


def test_without_a_session_the_page_says_what_to_do(browser: Any, server: WebServer) -> None:
    with opened(browser, server.address) as page:
        expect(page.get_by_role("heading", name="No session")).to_be_visible()
        expect(page.locator("main")).to_contain_text("penstock ui")


def test_what_users_wrote_is_text_and_never_markup(page: Any, server: WebServer) -> None:
    alarms: list[Any] = []
    page.on("dialog", lambda dialog: (alarms.append(dialog), dialog.dismiss()))
    show(page, server, "graph", "hurt-9a8b")
    expect(page.locator("h1")).to_have_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0
    assert alarms == []


def test_the_graph_has_the_vertices_and_edges_of_the_job(page: Any, server: WebServer) -> None:
    show(page, server, "graph")
    cards = page.locator("[data-vertex]")
    expect(cards).to_have_count(2)
    assert {card.get_attribute("data-vertex") for card in cards.all()} == {"lines", "count"}
    expect(page.locator('[data-vertex="lines"]')).to_contain_text("job.py:7")
    expect(page.locator(".edge")).to_have_count(1)
    expect(page.locator(".edge")).to_contain_text("key group")


def test_failures_name_the_cause_and_checkpoints_their_percentiles(page: Any, server: WebServer) -> None:
    show(page, server, "failures")
    expect(page.locator(".failures")).to_contain_text("operator 'count' broke")
    show(page, server, "checkpoints")
    expect(page.get_by_role("region", name="Summary")).to_contain_text("300 ms")
    expect(page.get_by_role("region", name=re.compile("Checkpoints")).locator("tbody tr")).to_have_count(3)


def test_two_checkpoints_are_shown_beside_each_other(page: Any, server: WebServer) -> None:
    show(page, server, "checkpoints")
    page.get_by_role("button", name="1", exact=True).click()
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.locator(".beside h3")).to_have_count(2)


def test_an_ended_job_offers_no_action(page: Any, server: WebServer) -> None:
    show(page, server, "graph")
    assert page.get_by_role("group", name="Actions").count() == 0


#: The only rule whose answer differs in the dark.
CONTRAST = {"runOnly": ["color-contrast"]}


def test_no_view_violates_a_rule_of_accessibility_by_light_or_in_the_dark(
    browser: Any, server: WebServer
) -> None:
    found = {}

    def look(page: Any, view: str) -> None:
        found[view] = Axe().run(page)
        page.emulate_media(color_scheme="dark")
        found[f"{view} in the dark"] = Axe().run(page, options=CONTRAST)
        page.emulate_media(color_scheme="light")

    address = f"{server.address}#token={server.access.new_login()}"
    with opened(browser, address, color_scheme="light") as page:
        page.get_by_role("heading", name="Jobs").wait_for()
        look(page, "jobs")
        for view in VIEWS:
            show(page, server, view)
            expect(page.get_by_text("Asking for")).to_have_count(0)
            look(page, view)
    said = {
        view: [(each["id"], each["nodes"][0]["html"][:200]) for each in result.response["violations"]]
        for view, result in found.items()
        if result.violations_count
    }
    assert said == {}


def test_a_phone_needs_no_scrolling_to_the_side(browser: Any, server: WebServer) -> None:
    address = f"{server.address}#token={server.access.new_login()}"
    with opened(browser, address, viewport={"width": 390, "height": 800}) as page:
        page.get_by_role("heading", name="Jobs").wait_for()
        for view in VIEWS:
            show(page, server, view)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


def test_a_job_is_reached_by_the_keyboard_alone(page: Any) -> None:
    page.get_by_role("link", name="words", exact=True).focus()
    page.keyboard.press("Enter")
    page.locator(".tabs").wait_for()
    page.get_by_role("link", name="Checkpoints").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="History")).to_be_visible()


def test_with_no_jobs_the_page_says_how_to_start_one(browser: Any, tmp_path: Path) -> None:
    with (
        served(JobDirectory(str(tmp_path))) as server,
        opened(browser, f"{server.address}#token={server.access.new_login()}") as page,
    ):
        expect(page.get_by_role("heading", name="Nothing runs yet")).to_be_visible()
        expect(page.locator("pre")).to_contain_text("ray job submit")


@contextmanager
def watched(browser: Any, vertices: int, checkpoints: int) -> Iterator[tuple[Any, ScriptedJob]]:
    """The graph of a running job of this size."""
    job = ScriptedJob(wide_report(vertices, checkpoints))
    with served(ScriptedDirectory(job)) as server:  # type: ignore[arg-type]
        login = f"{server.address}#token={server.access.new_login()}&job=wide-1f2e"
        with opened(browser, login) as page:
            expect(page.locator("[data-vertex]")).to_have_count(vertices)
            expect(page.locator('[data-vertex="vertex-0"]')).to_contain_text("busy 50 %")
            yield page, job


def nodes_touched_by_an_update(browser: Any, vertices: int, checkpoints: int) -> int:
    with watched(browser, vertices, checkpoints) as (page, job):
        expect(page.locator(".curve").first).to_contain_text("in, all sources 500")
        page.evaluate("""() => {
            window.touched = new Set();
            new MutationObserver((changes) => changes.forEach((change) => window.touched.add(change.target)))
                .observe(document.body, {
                    subtree: true, childList: true, characterData: true, attributes: true,
                });
        }""")
        job.current = replace(with_busy(job.current, 0.75), duration=200.0)
        expect(page.locator('[data-vertex="vertex-0"]')).to_contain_text("busy 75 %")
        expect(page.locator(".curve").first).to_contain_text("in, all sources 750")
        expect(page.locator(".figures")).to_contain_text("3 min 20 s")
        return int(page.evaluate("window.touched.size"))


def test_an_update_touches_as_much_in_a_large_job_as_in_a_small_one(browser: Any) -> None:
    small = nodes_touched_by_an_update(browser, 10, 20)
    large = nodes_touched_by_an_update(browser, 100, 1_000)
    # A time that the page shows may change to its next second in one of the two updates.
    assert 0 < small < 10
    assert 0 < large < 10


def test_a_thousand_checkpoints_are_shown_page_by_page(browser: Any) -> None:
    with watched(browser, 10, 1_000) as (page, _):
        page.get_by_role("link", name="Checkpoints").click()
        rows = page.get_by_role("region", name="Checkpoints, the newest first").locator("tbody tr")
        expect(rows).to_have_count(25)
        expect(rows.first).to_contain_text("1000")
        page.get_by_role("button", name="Older").click()
        expect(rows.first).to_contain_text("975")


def test_a_job_master_that_does_not_answer_is_told_with_its_age(browser: Any) -> None:
    with watched(browser, 10, 20) as (page, job):
        job.answers.clear()
        try:
            expect(page.get_by_text(re.compile("has not answered for [0-9]+ s"))).to_be_visible()
        finally:
            job.answers.set()
        expect(page.get_by_text("has not answered")).to_have_count(0)


def test_a_line_of_the_log_is_text_and_never_markup(browser: Any) -> None:
    with watched(browser, 10, 20) as (page, job):
        hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
        job.lines.append(LogLine("2026-01-02T03:04:05.678901Z", "vertex-0", 0, "out", hostile))
        page.get_by_role("link", name="Log").click()
        expect(page.get_by_role("log")).to_contain_text(hostile)
        assert page.locator("main img, main script").count() == 0
