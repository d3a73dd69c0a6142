"""A real Chromium that opens the page."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Milliseconds for anything to appear on a busy machine.
PATIENCE = 60_000
#: Without these it asks its maker's servers for many things at its start.
_ALONE = ("disable-background-networking", "disable-component-update", "disable-sync", "disable-quic")
_ARGUMENTS = [f"--{name}" for name in ("no-sandbox", "disable-gpu", "no-first-run", *_ALONE)]


def program() -> str | None:
    """The Chromium of this machine."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def browser() -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program(), args=_ARGUMENTS)
        try:
            yield started
        finally:
            started.close()


def until(page: Any, expression: str, argument: object = None) -> None:
    """Wait until an expression, or a function of the argument, is true in the page.

    Playwright's own `wait_for_function` evaluates text within the page, which the page's policy forbids.
    """
    deadline = time.monotonic() + PATIENCE / 1_000
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, f"never true in the page: {expression}"
        page.wait_for_timeout(20)


@contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page at an address. It may call only the server, and may not fail."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    problems: list[str] = []
    foreign: list[str] = []
    origin = "/".join(address.split("/")[:3])
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if "Content Security" in said.text else None)
    page.on("request", lambda asked: foreign.append(asked.url) if not asked.url.startswith(origin) else None)
    try:
        page.goto(address)
        yield page
        assert problems == []
        assert [url for url in foreign if not url.startswith(("data:", "blob:"))] == []
    finally:
        context.close()
