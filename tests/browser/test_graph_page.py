"""The job graph: before it is known, moved by keys, mouse and fingers, readable, and a list on a phone."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from serving.browser import PATIENCE, until
from serving.pipeline import JOB, PipelinePage, pipeline_page, pipeline_report

from penstock.actors.shared.slow_checkpoint import CheckpointPart, SlowCheckpoint
from penstock.runtime.graph.graph_info import GraphInfo

expect.set_options(timeout=PATIENCE)

VERTICES = ["orders", "parse", "enrich", "total-of-each-customer"]


def view_of(page: Any) -> tuple[float, float, float]:
    """Position and zoom of the drawing: x, y and zoom."""
    matrix = page.locator(".graph svg > g").evaluate(
        "each => { const m = each.transform.baseVal.consolidate().matrix; return [m.e, m.f, m.a]; }"
    )
    return tuple(matrix)


def wait_for_move(page: Any, before: tuple[float, float, float]) -> tuple[float, float, float]:
    until(
        page,
        """([x, y, zoom]) => {
            const m = document.querySelector(".graph svg > g").transform.baseVal.consolidate().matrix;
            return m.e !== x || m.f !== y || m.a !== zoom;
        }""",
        list(before),
    )
    return view_of(page)


@pytest.fixture
def graph(pipeline: PipelinePage) -> Any:
    page = pipeline.show("graph")
    expect(page.locator("[data-vertex]")).to_have_count(4)
    return page


def test_a_graph_that_is_not_known_yet_leaves_the_page_alive(pipeline: PipelinePage) -> None:
    broken: list[str] = []
    pipeline.page.on("pageerror", lambda error: broken.append(str(error)))
    pipeline.job.current = pipeline_report(graph=GraphInfo("orders", (), ()), subtasks=())
    page = pipeline.show("graph")
    expect(page.get_by_text("The graph is not known yet.")).to_be_visible()
    expect(page.locator(".curve").first).to_be_visible()
    page.get_by_role("link", name="Log").click()
    expect(page.get_by_role("log")).to_be_visible()
    page.goto(f"{pipeline.address}#/jobs/another/graph")
    expect(page.get_by_text("The graph is not known yet.")).to_be_visible()

    pipeline.job.current = pipeline_report()
    expect(page.locator("[data-vertex]")).to_have_count(4)
    before = view_of(page)
    page.locator(".frame").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    assert wait_for_move(page, before)[2] > before[2]
    assert broken == []


def test_keys_move_and_zoom_the_graph(graph: Any) -> None:
    graph.locator(".frame").focus()
    at = view_of(graph)
    for key, axis, sign in (
        ("ArrowRight", 0, -1),
        ("ArrowLeft", 0, 1),
        ("ArrowDown", 1, -1),
        ("ArrowUp", 1, 1),
    ):
        graph.keyboard.press(key)
        now = wait_for_move(graph, at)
        assert sign * (now[axis] - at[axis]) > 0, key
        assert now[1 - axis] == at[1 - axis], key
        at = now
    graph.keyboard.press("+")
    nearer = wait_for_move(graph, at)
    assert nearer[2] > at[2]
    graph.keyboard.press("-")
    assert wait_for_move(graph, nearer)[2] == pytest.approx(at[2])


def test_the_vertex_that_limits_the_job_stands_out_and_the_sentence_leads_to_its_subtasks(graph: Any) -> None:
    stands_out = graph.locator(".card.limits")
    expect(stands_out).to_have_count(1)
    expect(stands_out).to_have_attribute("data-vertex", "enrich")
    expect(stands_out).to_have_accessible_name(re.compile("^enrich, .*, the bottleneck$"))
    colour = "each => getComputedStyle(each).fill"
    loads = {
        vertex: graph.locator(f'[data-vertex="{vertex}"] .load').evaluate(colour) for vertex in VERTICES[:3]
    }
    assert loads["orders"] == loads["parse"] != loads["enrich"]
    said = graph.locator(".bottleneck")
    expect(said).to_contain_text("enrich is busy 97 % of the time; parse and orders wait for it.")
    said.get_by_role("link").click()
    expect(graph.get_by_role("region", name="Subtasks of enrich")).to_be_visible()


def test_a_checkpoint_that_takes_long_has_a_sentence_that_leads_to_the_subtask(
    pipeline: PipelinePage,
) -> None:
    slow = SlowCheckpoint(3, 12.3, "enrich", 2, CheckpointPart.ALIGNMENT, 11.9)
    pipeline.job.current = pipeline_report(slow_checkpoint=slow)
    page = pipeline.show("graph")
    said = page.locator(".slow-checkpoint")
    expect(said).to_contain_text("Checkpoint 3 took 12 s: enrich[2] waited 12 s")
    said.get_by_role("link", name="Look at enrich[2]").click()
    expect(page.get_by_role("region", name="Subtasks of enrich").locator("tr.picked")).to_contain_text(
        "enrich[2]"
    )


def test_a_card_names_the_event_time_if_it_is_of_today(pipeline: PipelinePage) -> None:
    page = pipeline.show()
    reached = page.locator('[data-vertex="parse"] text.line').last
    expect(reached).to_have_text(re.compile(r"^2023-11-14 \d\d:\d\d:\d\d"))
    now = datetime.now(UTC).replace(hour=12, minute=34, second=56, microsecond=0)
    report = pipeline_report()
    subtasks = tuple(
        replace(each, statistics=replace(each.statistics, current_watermark=int(now.timestamp() * 1e6)))
        for each in report.subtasks
        if each.statistics
    )
    pipeline.job.current = replace(report, subtasks=subtasks)
    expect(reached).to_have_text(re.compile(r"^event time \d\d:\d\d:56"))


def test_highest_shares_of_different_subtasks_are_named_as_such(graph: Any) -> None:
    expect(graph.locator('[data-vertex="enrich"]')).to_contain_text("busy max 97 %")


def test_shares_of_one_time_add_up_to_all_of_it(graph: Any) -> None:
    percents = "(shares) => import('./format.js').then((module) => module.percents(shares))"
    assert graph.evaluate(percents, [0.985, 0.015, 0.0]) == [99, 1, 0]
    assert graph.evaluate(percents, [1 / 3, 1 / 3, 1 / 3]) == [34, 33, 33]
    assert graph.evaluate(percents, [1.0, 0.0, 0.0]) == [100, 0, 0]


def test_a_click_on_an_edge_shows_ten_records_of_now(graph: Any) -> None:
    edge = graph.get_by_role("button", name="Records from parse to enrich")
    edge.click()
    dialog = graph.get_by_role("dialog", name="Records from parse to enrich")
    rows = dialog.get_by_role("region", name="Records of now").locator("tbody tr")
    expect(rows).to_have_count(10)
    expect(rows.nth(3)).to_contain_text("parse[1]")
    expect(rows.nth(3)).to_contain_text("{'order': 3, 'edge': 1}")
    assert Axe().run(graph).violations_count == 0
    dialog.get_by_role("button", name="Take again").click()
    expect(rows).to_have_count(10)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    edge.focus()
    graph.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    graph.keyboard.press("Escape")


def test_a_click_on_an_edge_waits_for_its_next_records(pipeline: PipelinePage) -> None:
    pipeline.job.records_flow = False
    page = pipeline.show("graph")
    page.get_by_role("button", name="Records from parse to enrich").click()
    dialog = page.get_by_role("dialog", name="Records from parse to enrich")
    expect(dialog).to_contain_text("No record came within 2.0 s. Waiting for the next records")
    pipeline.job.records_flow = True
    expect(dialog.get_by_role("region", name="Records of now").locator("tbody tr")).to_have_count(10)
    expect(dialog).not_to_contain_text("No record came")


def test_a_server_that_hides_records_has_no_edge_to_click(browser: Any) -> None:
    with pipeline_page(browser, hides_records=True) as pipeline:
        page = pipeline.show("graph")
        expect(page.locator("[data-vertex]")).to_have_count(4)
        expect(page.get_by_role("button", name=re.compile("Records from"))).to_have_count(0)
        page.goto(f"{pipeline.address}v1/jobs/{JOB}/edges/0/records")
        expect(page.locator("body")).to_contain_text("--hide-records")


def test_enter_on_a_vertex_opens_its_subtasks(graph: Any) -> None:
    graph.locator(".frame").focus()
    for _ in range(3):
        graph.keyboard.press("Tab")
    graph.keyboard.press("Enter")
    expect(graph.get_by_role("region", name="Subtasks of enrich")).to_be_visible()


def test_a_vertex_that_the_keyboard_reaches_comes_into_sight(pipeline: PipelinePage) -> None:
    pipeline.page.set_viewport_size({"width": 700, "height": 900})
    page = pipeline.show("graph")
    last = page.locator(f'[data-vertex="{VERTICES[-1]}"] .body')
    frame = page.locator(".frame").bounding_box()
    assert last.bounding_box()["x"] > frame["x"] + frame["width"]
    before = view_of(page)
    page.locator(".frame").focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    wait_for_move(page, before)
    seen = last.bounding_box()
    assert seen["x"] + seen["width"] <= frame["x"] + frame["width"]


def test_a_drag_that_ends_on_a_vertex_does_not_open_it(graph: Any) -> None:
    card = graph.locator('[data-vertex="parse"] .body').bounding_box()
    before = view_of(graph)
    graph.mouse.move(card["x"] + 60, card["y"] + 40)
    graph.mouse.down()
    graph.mouse.move(card["x"] + 90, card["y"] + 70, steps=3)
    graph.mouse.up()
    x, y, _ = wait_for_move(graph, before)
    assert (x - before[0], y - before[1]) == pytest.approx((30, 30), abs=0.01)
    assert graph.url.endswith("/graph")
    graph.locator('[data-vertex="parse"]').click()
    expect(graph.get_by_role("region", name="Subtasks of parse")).to_be_visible()


def test_text_is_large_enough_to_read_and_meets_no_edge(graph: Any) -> None:
    sizes = graph.locator(".graph svg text").evaluate_all(
        "all => all.map((each) => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a)"
    )
    assert min(sizes) >= 11
    met = graph.locator(".edge").evaluate_all(
        """edges => edges.map((edge) => {
            const path = edge.querySelector("path");
            const labels = [...edge.querySelectorAll("text")].map((each) => each.getBBox());
            const meets = ({ x, y }) => labels.some((box) =>
                x > box.x && x < box.x + box.width && y > box.y + 1 && y < box.y + box.height - 1);
            const whole = path.getTotalLength();
            const pointAt = (_, part) => path.getPointAtLength(part * whole / 100);
            return Array.from({ length: 101 }, pointAt).some(meets);
        })"""
    )
    assert met == [False, False, False]


def test_arrows_of_full_edges_are_as_large_as_others(graph: Any) -> None:
    units = graph.locator("marker").evaluate_all("all => all.map((each) => each.markerUnits.baseVal)")
    assert units == [1, 1]  # in units of the drawing, not of the stroke
    expect(graph.locator(".edge.full")).to_have_count(2)


def test_fingers_zoom_the_graph(browser: Any) -> None:
    with pipeline_page(browser, viewport={"width": 900, "height": 1_000}, has_touch=True) as pipeline:
        page = pipeline.page
        before = view_of(page)
        box = page.locator(".frame").bounding_box()
        x, y = box["x"] + 300, box["y"] + 90
        fingers = page.context.new_cdp_session(page)

        def touch(kind: str, apart: int) -> None:
            points = [{"x": x - apart, "y": y}, {"x": x + apart, "y": y}] if apart else []
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 50)
        for apart in (60, 80, 100):
            touch("touchMove", apart)
        touch("touchEnd", 0)
        assert wait_for_move(page, before)[2] == pytest.approx(2 * before[2])


def test_on_a_phone_the_graph_is_a_list_that_fingers_enlarge(browser: Any) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    with pipeline_page(browser, **phone) as pipeline:
        page = pipeline.page
        cards = page.get_by_role("list", name="Job graph").locator("[data-vertex]")
        expect(cards).to_have_count(4)
        assert [card.get_attribute("data-vertex") for card in cards.all()] == VERTICES
        expect(cards.nth(2)).to_contain_text("busy max 97 %")
        expect(cards.nth(2)).to_contain_text("→ total-of-each-customer: key group, 10 % full")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        tabs = page.locator(".tabs a")
        expect(tabs).to_have_count(9)
        head = page.locator(".tabs a, .actions button, .figure, .title > *, .top > *")
        assert head.evaluate_all("all => all.every((each) => each.getBoundingClientRect().right <= 390)")
        rows = "all => new Set(all.map((each) => each.getBoundingClientRect().y)).size"
        assert page.locator(".actions button").evaluate_all(rows) == 1
        assert tabs.evaluate_all(rows) == 2
        cards.nth(1).get_by_role("button", name="Records from parse to enrich").click()
        expect(page.get_by_role("dialog").locator("tbody tr")).to_have_count(10)
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
        sizes = page.locator(".vertices *").evaluate_all(
            "all => all.map((each) => parseFloat(getComputedStyle(each).fontSize))"
        )
        assert min(sizes) >= 12
        assert Axe().run(page).violations_count == 0
        cards.nth(1).get_by_role("link").click()
        expect(page).to_have_url(f"{pipeline.address}#/jobs/{JOB}/subtasks/parse")
        page.go_back()
        box = cards.first.bounding_box()
        page.context.new_cdp_session(page).send(
            "Input.synthesizePinchGesture",
            {"x": box["x"] + 100, "y": box["y"] + 50, "scaleFactor": 2, "relativeSpeed": 4_000},
        )
        until(page, "visualViewport.scale > 1.5")
