"""The head of a job's page, its curves, its title, and one clock in all views."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.browser import PATIENCE, until
from serving.pipeline import BEGAN, JOB, PipelinePage, pipeline_page, pipeline_report

from penstock import JobStatus
from penstock.actors.shared.job_report import JobMasterProcess, Takeover
from penstock.actors.web.server import WebServer
from penstock.runtime.errors import UserLocation
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.snapshot.ids import SubtaskId

expect.set_options(timeout=PATIENCE)

DASH = "\N{EN DASH}"
HOSTILE = "<img src=x onerror=alert(1)>"
#: Notes each text that is drawn, with where it begins and ends.
NOTES_OF_TEXTS = """
    window.drawn = [];
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const { width } = this.measureText(text);
        const left = x - { right: width, center: width / 2 }[this.textAlign] || x;
        window.drawn.push({ text, left, right: left + width, y });
        return fill.apply(this, arguments);
    };
"""


def figure(page: Any, name: str) -> Any:
    return page.locator(".figure").filter(has=page.get_by_text(name, exact=True)).locator("dd")


def test_an_ended_job_says_how_long_it_ran_and_shows_no_rates(page: Any, server: WebServer) -> None:
    page.goto(f"{server.address}#/jobs/words-1f2e/graph")
    expect(figure(page, "Ran for")).to_have_text("20 s")
    expect(figure(page, "Last checkpoint")).to_contain_text("1970-01-01")
    expect(page.get_by_text("There are no curves: this server did not see the job run.")).to_be_visible()
    said = page.locator("main").inner_text()
    for words in ("Running for", "nothing measured yet", f"busy {DASH}", f"{DASH}/s"):
        assert words not in said
    loads = page.locator(".card .load").evaluate_all("all => all.map((each) => getComputedStyle(each).fill)")
    neutral = page.locator(".card .rule").first.evaluate("each => getComputedStyle(each).stroke")
    assert loads == [neutral, neutral]


def test_an_ended_job_has_no_edge_that_is_full(browser: Any) -> None:
    with pipeline_page(browser) as pipeline:
        page = pipeline.page
        expect(page.locator(".edge.full")).to_have_count(2)
        pipeline.job.current = pipeline_report(status=JobStatus.FAILED)
        expect(figure(page, "Ran for")).to_have_text("1 h 1 min")
        expect(page.locator(".edge.full")).to_have_count(0)
        expect(page.locator(".card.unknown")).to_have_count(4)


def test_an_ended_job_says_what_is_left_and_a_restored_one_from_what(browser: Any) -> None:
    restored = {"restore_from": "/saved/savepoint-1", "checkpointing.keep_after": "KeepAfter.FAILURE"}
    with pipeline_page(browser) as pipeline:
        page = pipeline.page
        left = page.get_by_role("region", name="What is left")
        expect(page.get_by_text("Restored from")).to_have_count(0)
        pipeline.job.current = pipeline_report(settings=restored)
        expect(page.get_by_text("Restored from /saved/savepoint-1", exact=True)).to_be_visible()
        expect(left).to_have_count(0)

        counted = JobStatistics(JobStatus.FAILED, attempt=1, completed_checkpoints=3, last_checkpoint_id=3)
        pipeline.job.current = pipeline_report(status=JobStatus.FAILED, statistics=counted, settings=restored)
        expect(left.locator("p")).to_have_text(
            [
                f"Kept: its checkpoints in /storage/{JOB}",
                f"To continue: penstock restore /storage/{JOB} python PROGRAM",
            ]
        )
        expect(left.locator("code").last).to_have_text(f"penstock restore /storage/{JOB} python PROGRAM")
        expect(page.get_by_text("Restored from /saved/savepoint-1", exact=True)).to_be_visible()


def test_an_ended_job_that_keeps_no_checkpoint_says_by_which_setting(browser: Any) -> None:
    counted = JobStatistics(JobStatus.CANCELLED, attempt=1, completed_checkpoints=3, last_checkpoint_id=3)
    with pipeline_page(browser) as pipeline:
        pipeline.job.current = pipeline_report(
            status=JobStatus.CANCELLED,
            statistics=counted,
            settings={"checkpointing.keep_after": "KeepAfter.FAILURE"},
        )
        left = pipeline.page.get_by_role("region", name="What is left")
        expect(left).to_contain_text("Kept: nothing. Deleted: its checkpoints")
        expect(left).to_contain_text("keep_after")
        expect(left).not_to_contain_text("To continue")


def test_rates_say_that_they_are_of_all_sources_and_all_sinks(pipeline: PipelinePage) -> None:
    page = pipeline.show()
    expect(figure(page, "In, all sources")).to_have_text("5,000/s")
    expect(figure(page, "Out, all sinks")).to_have_text("4,900/s")


def test_the_title_of_the_window_names_the_job(page: Any, server: WebServer) -> None:
    expect(page).to_have_title("Penstock")
    page.get_by_role("link", name="words", exact=True).click()
    expect(page).to_have_title(f"words {DASH} Penstock")
    page.get_by_role("link", name="Penstock").click()
    expect(page).to_have_title("Penstock")
    page.get_by_role("link", name=HOSTILE).click()
    expect(page).to_have_title(f"{HOSTILE} {DASH} Penstock")
    expect(page.locator(".crumb").last).to_have_text(HOSTILE)
    assert page.locator("main img, header .crumb img").count() == 0


def test_what_an_error_says_is_text_with_names_as_code(pipeline: PipelinePage) -> None:
    message = f"`enrich` got {HOSTILE} and a ` alone; give `credits`"
    cause = FailureCause(message, operator="enrich", defined_at=UserLocation("<b>shop</b>.py", 7, "main"))
    failure = FailureRecord(1, BEGAN, cause)
    alarms: list[Any] = []
    pipeline.page.on("dialog", lambda dialog: (alarms.append(dialog), dialog.dismiss()))
    warning = "it has no `sink`"
    pipeline.job.current = pipeline_report(failure=failure, failures=(failure,), warnings=(warning,))
    page = pipeline.show("failures")
    for place in (page.get_by_role("alert"), page.locator(".failures .cause")):
        expect(place).to_contain_text(f"enrich got {HOSTILE} and a ` alone; give credits")
        assert place.locator("code").all_inner_texts() == ["enrich", "credits"]
    expect(page.locator(".failures")).to_contain_text("<b>shop</b>.py:7")
    assert page.locator(".notice.warning code").all_inner_texts() == ["sink"]
    assert page.locator("main img, main b").count() == 0
    assert alarms == []


def test_a_process_that_died_has_the_lines_of_its_operators(pipeline: PipelinePage) -> None:
    failure = FailureRecord(1, BEGAN, FailureCause("its process died", SubtaskId("orders", 1)))
    pipeline.job.current = pipeline_report(failures=(failure,))
    page = pipeline.show("failures")
    defined = page.locator(".failures .pairs > div").filter(has_text="Operators defined at")
    lines = [f"/home/ada/shop/order_totals.py:{number}" for number in (20, 21, 22)]
    expect(defined.locator("dd code:first-child")).to_have_text(lines)


def test_a_dialog_stays_open_and_usable_when_the_bottleneck_vanishes_behind_it(
    pipeline: PipelinePage,
) -> None:
    page = pipeline.show()
    expect(page.locator(".bottleneck")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Folder").fill("/backup")
    calm = tuple(replace(each, rates=None) for each in pipeline.job.current.subtasks)
    pipeline.job.current = pipeline_report(subtasks=calm)
    expect(page.locator(".bottleneck")).to_have_count(0)
    assert dialog.evaluate("each => each.matches(':modal')")
    expect(dialog.get_by_label("Folder")).to_have_value("/backup")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_have_count(0)


def test_equal_failures_in_a_row_are_one_and_the_page_says_that_it_keeps_the_last(
    pipeline: PipelinePage,
) -> None:
    other = FailureCause("its process died", SubtaskId("orders", 1))
    same = FailureCause("division by zero", SubtaskId("enrich", 0))
    causes = (same, other, *[same] * 14)
    failures = tuple(FailureRecord(5 + number, BEGAN + number, cause) for number, cause in enumerate(causes))
    pipeline.job.current = pipeline_report(failures=failures)
    page = pipeline.show("failures")
    expect(page.locator(".failures h2")).to_have_count(3)
    titles = page.locator(".failures h2").all_inner_texts()
    assert titles[0].startswith("Attempts 7 to 20 failed, 14 times in the same way")
    assert titles[1].startswith("Attempt 6 failed")
    assert titles[2].startswith("Attempt 5 failed")
    expect(page.get_by_text("The last 16 failures are kept.")).to_be_visible()

    pipeline.job.current = pipeline_report(failures=failures[:3])
    expect(page.locator(".failures h2")).to_have_count(3)
    expect(page.get_by_text("failures are kept.")).to_have_count(0)


def test_a_death_of_the_job_master_counts_among_the_failures_as_it_does_among_the_restarts(
    pipeline: PipelinePage,
) -> None:
    failures = tuple(FailureRecord(n, BEGAN + at, FailureCause("5 / 0")) for n, at in ((1, 10), (3, 30)))
    history = (Takeover(BEGAN + 20, JobMasterProcess(12, "node", 1.0)),)
    statistics = JobStatistics(JobStatus.RUNNING, attempt=4, restarts=3)
    pipeline.job.current = pipeline_report(failures=failures, history=history, statistics=statistics)
    page = pipeline.show("failures")
    titles = page.locator(".failures h2")
    expect(titles).to_contain_text(["Attempt 3 failed", "The JobMaster died", "Attempt 1 failed"])
    expect(page.locator(".failures li").nth(1)).to_contain_text(
        "Another process (pid 12) became the JobMaster"
    )
    expect(page.locator('a[href$="/failures"] .tag')).to_have_text("3")


def test_a_lag_says_when_it_will_be_gone(browser: Any) -> None:
    trend = {
        "lag": 120.0,
        "slope": -0.5,
        "direction": "shrinks",
        "gone_in": 240.0,
        "text": "is gone in about 4 min",
    }

    def with_trend(route: Any) -> None:
        route.fulfill(json=route.fetch().json() | {"lag_trend": trend})

    with pipeline_page(browser) as pipeline:
        pipeline.page.route(f"**/v1/jobs/{JOB}", with_trend)
        pipeline.page.route("**/events", lambda route: route.abort())
        pipeline.page.reload()
        expect(figure(pipeline.page, "Lag")).to_contain_text("is gone in about 4 min")


def test_curves_show_their_last_values(pipeline: PipelinePage) -> None:
    page = pipeline.show()
    for title, words in (
        ("Records per second", "in, all sources 5,000"),
        ("Size of checkpoints", "size 1.25 MiB"),
        ("Duration of checkpoints", "duration 400 ms"),
    ):
        curve = page.locator(".curve").filter(has_text=title)
        expect(curve.locator(".values")).to_contain_text(words)


def test_a_job_that_restarts_shows_its_cause_and_no_numbers_of_its_last_attempt(
    pipeline: PipelinePage,
) -> None:
    failure = FailureRecord(1, BEGAN, FailureCause("its process died", SubtaskId("orders", 1)))
    page = pipeline.show()
    expect(page.locator(".bottleneck")).to_be_visible()
    pipeline.job.current = pipeline_report(status=JobStatus.RESTARTING, failure=failure, failures=(failure,))
    expect(page.get_by_role("alert")).to_contain_text("its process died")
    expect(page.locator(".bottleneck")).to_have_count(0)
    expect(page.locator(".card.limits")).to_have_count(0)
    expect(figure(page, "In, all sources")).not_to_contain_text("/s")


def test_curves_follow_a_change_between_light_and_dark(pipeline: PipelinePage) -> None:
    page = pipeline.show()
    drawn = """() => {
      const canvas = document.querySelector(".curve canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const wanted = getComputedStyle(document.documentElement).getPropertyValue("--rule").trim().slice(1);
      const [r, g, b] = wanted.match(/../g).map((two) => parseInt(two, 16));
      return data.some((red, at) => at % 4 === 0 && red === r && data[at + 1] === g && data[at + 2] === b);
    }"""
    page.locator(".curve canvas").first.wait_for()
    until(page, drawn)
    page.emulate_media(color_scheme="dark")
    try:
        until(page, drawn)
    finally:
        page.emulate_media(color_scheme="light")


def test_marks_on_axes_are_round_whole_and_apart(browser: Any) -> None:
    with pipeline_page(browser) as pipeline:
        page = pipeline.page
        page.add_init_script(NOTES_OF_TEXTS)
        pipeline.show()
        until(page, "window.drawn.some((each) => each.text === '500 d')")
        drawn = page.evaluate("window.drawn")
        texts = {each["text"] for each in drawn}
        assert {"500 d", "1000 d", "1500 d"} <= texts  # event time is 1,100 days behind, or more
        assert {"0", "2,000", "4,000", "6,000"} <= texts
        assert {"512 KiB", "1 MiB", "1.5 MiB"} <= texts
        assert {"100 ms", "200 ms", "300 ms", "400 ms"} <= texts
        assert min(each["left"] for each in drawn) >= 0
        times = [each for each in drawn if ":" in each["text"]]
        assert times
        for one, other in pairwise(times):
            if one["y"] == other["y"] and one["left"] < other["left"]:
                assert other["left"] - one["right"] > 8


@pytest.mark.parametrize(
    ("name", "high", "marks"),
    [
        ("SECONDS", 231 * 86_400, [0, 100 * 86_400, 200 * 86_400, 300 * 86_400]),
        ("SECONDS", 50, [0, 15, 30, 45, 60]),
        ("COUNTS", 0, [0, 1]),
        ("COUNTS", 9.0, [0, 5, 10]),
    ],
)
def test_marks_reach_the_highest_value_in_round_steps(
    pipeline: PipelinePage, name: str, high: float, marks: list[float]
) -> None:
    found = pipeline.page.evaluate(
        """async ([name, high]) => {
            const made = await import("/curves.js");
            return made.marksTo(high, made[name]);
        }""",
        [name, high],
    )
    assert found == marks


def test_all_times_are_on_one_clock_that_the_page_names(browser: Any) -> None:
    with pipeline_page(browser, timezone_id="Asia/Kolkata", locale="en-US") as pipeline:
        pipeline.write("INFO order: late")
        page = pipeline.show("graph")
        expect(page.locator(".zone")).to_contain_text("UTC+5:30")
        expect(page.locator(".zone")).to_contain_text("Asia/")
        # Submitted at 23:30 UTC; event time is 50 s, the last checkpoint 60 s behind that.
        expect(page.locator('[data-vertex="enrich"]')).to_contain_text("2023-11-15 05:00:50")
        expect(figure(page, "Last checkpoint")).to_have_text("2023-11-15 05:01:00")
        page.get_by_role("link", name="Log").click()
        expect(page.locator(".day")).to_have_text("2023-11-15")
        expect(page.locator(".entry")).to_contain_text("05:29:07.250")
        page.get_by_role("link", name="Checkpoints").click()
        rows = page.get_by_role("region", name="Checkpoints, the newest first").locator("tbody tr")
        expect(rows.first).to_contain_text("1970-01-01 05:30:03")
        page.get_by_role("link", name="Subtasks").click()
        page.get_by_label("Vertex").select_option("enrich")
        watermark = page.get_by_role("region", name="Subtasks of enrich").locator("tbody tr").first
        expect(watermark).to_contain_text("2023-11-15")
        expect(watermark).to_contain_text("05:00:50")
        assert not any(half in page.locator("main").inner_text() for half in ("AM", "PM"))
