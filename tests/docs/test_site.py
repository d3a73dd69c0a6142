"""The site is built without a warning, and is readable in a browser: on a desk, on a phone, in the dark."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from serving.browser import browser as started
from serving.browser import opened

ROOT = Path(__file__).resolve().parents[2]
#: A guide with tables and programs, the tutorial, and a page of the reference.
PAGES = ("tutorial.html", "files.html", "reference/penstock.operators.html")
VIEWS: dict[str, dict[str, Any]] = {
    "desk": {},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "dark": {"color_scheme": "dark"},
}

pytestmark = pytest.mark.long


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are no output of a test."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", folder / "trees"]
    done = subprocess.run(
        [*command, ROOT / "docs", folder / "html"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as browser:
        yield browser


def test_llms_txt_has_a_line_for_every_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert [page.stem for page in (ROOT / "docs").glob("*.md") if f"({page.stem}.html): " not in text] == []
    assert "(notebooks/ten_minutes.html)" in text
    assert "(reference/penstock.operators.html)" in text


def test_notebooks_show_their_stored_results(site: Path) -> None:
    page = (site / "notebooks" / "ten_minutes.html").read_text(encoding="utf-8")
    assert "20,000 readings, each of them once" in page


@pytest.mark.browser
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_and_fits(browser: Any, address: str, name: str, view: str) -> None:
    with opened(browser, f"{address}/{name}", **VIEWS[view]) as page:
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
