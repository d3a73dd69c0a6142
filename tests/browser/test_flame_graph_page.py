"""A flame graph in the browser: zoom, keyboard, user code, search, and a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.acting import STACKS
from serving.browser import PATIENCE, until
from serving.live_page import LivePage

from penstock.actors.web import routes
from penstock.actors.web.inspections import FlameGraphType, tree_of
from penstock.runtime.errors import DeploymentError

expect.set_options(timeout=PATIENCE)

Taken = list[float]
#: Stacks of a task that waits for a service.
WAITS = ["step (runtime/task/loop.py:33);parse (job.py:12);recv (socket.py:7) 60"]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """For how many seconds the server has looked, each time; it sees `STACKS`."""
    asked: Taken = []

    def look(process: Any, seconds: float, kind: FlameGraphType) -> dict[str, Any]:
        asked.append(seconds)
        root = tree_of(WAITS if kind is FlameGraphType.OFF_CPU else STACKS)
        return {"root": root, "seconds": seconds, "rate": 100, "type": kind.value}

    monkeypatch.setattr(routes, "flame_graph", look)
    return asked


@pytest.fixture
def opened(live: LivePage) -> Callable[[], Any]:
    def opened() -> Any:
        live.show("subtasks/count")
        live.page.get_by_role("button", name="Flame graph of count[3]").click()
        return live.page.get_by_role("dialog")

    return opened


def box(dialog: Any, name: str) -> Any:
    return dialog.get_by_role("button", name=name)


def test_it_shows_where_a_task_waits(taken: Taken, opened: Any) -> None:
    dialog = opened()
    expect(dialog).to_contain_text("Threads that wait are left out.")
    dialog.get_by_label("Threads").select_option("Off-CPU")
    expect(box(dialog, "recv (socket.py:7): 100.0 %")).to_be_visible()
    expect(dialog).to_contain_text("Only the task's thread, while it waits.")
    assert taken == [3.0, 3.0]


def test_a_box_is_zoomed_to_and_all_is_shown_again(taken: Taken, opened: Any) -> None:
    dialog = opened()
    clean = box(dialog, "clean (words/text.py:3): 15.0 %")
    before = clean.bounding_box()["width"]
    clean.click()
    expect(box(dialog, "loads (json")).to_have_count(0)
    assert clean.bounding_box()["width"] > 5 * before
    dialog.get_by_role("button", name="Show all").click()
    expect(box(dialog, "loads (json")).to_be_visible()
    assert clean.bounding_box()["width"] == before
    assert taken == [3.0]


def test_the_keyboard_reaches_boxes_zooms_and_goes_back(taken: Taken, opened: Any, live: LivePage) -> None:
    dialog, keys = opened(), live.page.keyboard
    expect(dialog.locator(".flame[tabindex='0']")).to_have_count(1)
    dialog.locator(".flame[tabindex='0']").focus()
    for _ in range(4):
        keys.press("ArrowDown")
    expect(box(dialog, "clean (words")).to_be_focused()
    keys.press("ArrowRight")
    expect(box(dialog, "loads (json")).to_be_focused()
    keys.press("Enter")
    expect(box(dialog, "clean (words")).to_have_count(0)
    expect(box(dialog, "loads (json")).to_be_focused()
    keys.press("Escape")
    expect(box(dialog, "clean (words")).to_be_visible()
    keys.press("Escape")
    expect(dialog).to_have_count(0)


def test_user_code_is_marked_and_can_stand_alone(taken: Taken, opened: Any) -> None:
    dialog = opened()
    expect(dialog).to_contain_text("100 stacks of 3.0 s")
    expect(dialog).to_contain_text("80.0 % have user code")
    expect(dialog.locator(".flame.own")).to_have_count(2)
    dialog.get_by_label("User code only").check()
    expect(dialog.locator(".flame")).to_have_count(3)
    expect(box(dialog, "parse (job.py:12): 80.0 %")).to_be_visible()
    expect(box(dialog, "run (threading")).to_have_count(0)


def test_functions_are_found_with_their_share(taken: Taken, opened: Any) -> None:
    dialog = opened()
    dialog.get_by_label("Search").fill("PARSE")
    expect(dialog).to_contain_text("80.0 % match.")
    expect(dialog.locator(".flame.found")).to_have_count(1)


def test_it_is_taken_again_for_longer(taken: Taken, opened: Any) -> None:
    dialog = opened()
    expect(dialog.locator(".flame").first).to_be_visible()
    dialog.get_by_role("button", name="Take again").click()
    expect(dialog.get_by_label("Sample for")).to_be_enabled()
    dialog.get_by_label("Sample for").select_option("10")
    expect(dialog).to_contain_text("100 stacks of 10 s")
    assert taken == [3.0, 3.0, 10.0]


def test_what_the_system_forbids_is_said_in_its_words(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: Any, seconds: float, kind: FlameGraphType) -> dict[str, Any]:
        msg = "no flame graph of count[3]: the system forbids py-spy from reading other processes (ptrace)"
        raise DeploymentError(msg)

    monkeypatch.setattr(routes, "flame_graph", refuse)
    dialog = opened()
    expect(dialog.get_by_role("alert")).to_contain_text("the system forbids py-spy")
    expect(dialog.get_by_role("button", name="Take again")).to_be_enabled()


def test_on_a_phone_the_graph_fits(taken: Taken, opened: Any, live: LivePage) -> None:
    live.page.set_viewport_size({"width": 390, "height": 800})
    dialog = opened()
    expect(box(dialog, "parse (job.py:12)")).to_be_visible()
    until(live.page, "document.querySelector('.flames').getBoundingClientRect().width <= 390")


#: Frames as py-spy names them.
OWN = (
    "parse (job.py:12)",
    "clean (words/text.py:3)",
    "apply (/home/me/job.py:3)",
    "sum (numpy/core/fromnumeric.py:2313)",
    "fit (/env/lib/python3.11/site-packages/sklearn/base.py:9)",
)
OTHERS = (
    "step (runtime/task/loop.py:33)",
    "get (ray/_private/worker.py:2)",
    "get (/env/lib/python3.11/site-packages/ray/worker.py:2)",
    "Thread.run (threading.py:975)",
    "loads (/usr/lib/python3.11/json/__init__.py:346)",
    "_call (<frozen importlib._bootstrap>:241)",
    "all",
)


def test_frames_of_others_are_told_from_the_users(live: LivePage) -> None:
    script = "(frames) => import('./flame_graph.js').then((module) => frames.filter(module.isOwn))"
    assert live.page.evaluate(script, [*OWN, *OTHERS]) == list(OWN)
