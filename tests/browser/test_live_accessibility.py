"""Rules of accessibility on what only a running job has: dialogs, a flame graph, details."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from serving.acting import STACKS
from serving.browser import PATIENCE
from serving.live_page import LivePage

from penstock.actors.web import routes
from penstock.actors.web.inspections import FlameGraphType, tree_of

expect.set_options(timeout=PATIENCE)


def dialog_of(action: str, confirm: str) -> Callable[[LivePage], None]:
    def show(live: LivePage) -> None:
        live.press(action).get_by_role("button", name=confirm).wait_for()

    return show


def flames(live: LivePage) -> None:
    live.show("subtasks/count")
    live.page.get_by_role("button", name="Flame graph of count[3]").click()
    live.page.get_by_label("Search").fill("parse")
    expect(live.page.locator(".flame.found")).to_have_count(1)


def details(live: LivePage) -> None:
    live.show("checkpoints")
    for number in ("1", "4"):
        live.button(number).click()
    expect(live.page.get_by_text("subtasks so far")).to_be_visible()


def key(live: LivePage) -> None:
    live.show("state")
    live.page.get_by_label("Key", exact=True).fill("7")
    live.button("Look up").click()
    live.page.locator(".found").wait_for()


def ended(live: LivePage) -> None:
    live.press("Checkpoint").get_by_role("button", name="Take a checkpoint").click()
    live.page.get_by_text("has ended after").wait_for()


#: Options of axe. In the dark, only the answer about contrasts differs.
BY_SCHEME: dict[str, dict[str, Any]] = {
    "light": {"resultTypes": ["violations"]},
    "dark": {"resultTypes": ["violations"], "runOnly": ["color-contrast"]},
}


def violations(page: Any) -> list[tuple[str, str, str]]:
    """Violations of rules in the dialog, or in the page when there is none."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    found = []
    for scheme, options in BY_SCHEME.items():
        page.emulate_media(color_scheme=scheme)
        broken = page.evaluate(
            "(options) => axe.run(document.querySelector('dialog') ?? 'main', options).then("
            "(result) => result.violations.map((each) => [each.id, each.nodes[0].html.slice(0, 200)]))",
            options,
        )
        found += [(scheme, rule, markup) for rule, markup in broken]
    return found


SHOWN: dict[str, Callable[[LivePage], None]] = {
    "checkpoint": dialog_of("Checkpoint", "Take a checkpoint"),
    "savepoint": dialog_of("Savepoint", "Take a savepoint"),
    "rescale": dialog_of("Rescale", "Rescale the job"),
    "stop": dialog_of("Stop", "Stop the job"),
    "cancel": dialog_of("Cancel", "Cancel the job"),
    "an end": ended,
    "flame graph": flames,
    "details": details,
    "key": key,
    "subtasks": lambda live: live.show("subtasks/count"),
    "nodes": lambda live: live.show("nodes"),
    "configuration": lambda live: live.show("configuration"),
    "timeline": lambda live: live.show("timeline"),
}


def test_no_dialog_and_no_detail_violates_a_rule_by_light_or_in_the_dark(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(process: Any, seconds: float, kind: FlameGraphType) -> dict[str, Any]:
        return {"root": tree_of(STACKS), "seconds": seconds, "rate": 100, "type": kind.value}

    monkeypatch.setattr(routes, "flame_graph", look)
    said = {}
    try:
        for name, show in SHOWN.items():
            show(live)
            problems = violations(live.page)
            if problems:
                said[name] = problems
            for dialog in live.page.get_by_role("dialog").all():
                dialog.get_by_role("button", name="Leave it").or_(live.button("Close")).click()
                expect(dialog).to_have_count(0)
    finally:
        live.page.emulate_media(color_scheme="no-preference")
    assert said == {}
