"""One browser for all files, and one server with jobs that have ended for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving.browser import browser as started
from serving.browser import opened
from serving.in_thread import served
from serving.live_page import LivePage, live_page
from serving.pipeline import PipelinePage, pipeline_page, pipeline_report
from serving.reports import leave, report_of

from penstock import JobStatus
from penstock.actors.web.server import JobDirectory, WebServer

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Its event loop must not stay in the process: tests behind this folder run loops of their own."""
    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("storage")
    leave(
        folder,
        report_of("words-1f2e", "words", folder),
        report_of("hurt-9a8b", "<img src=x onerror=alert(1)>", folder, JobStatus.FINISHED),
    )
    with served(JobDirectory(str(folder))) as server:
        yield server


@pytest.fixture
def page(browser: Any, server: WebServer) -> Iterator[Any]:
    """The list of jobs, after a login as the printed address begins one."""
    with opened(browser, f"{server.address}#token={server.access.new_login()}") as page:
        page.get_by_role("heading", name="Jobs").wait_for()
        yield page


@pytest.fixture(scope="module")
def _opened_once(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePage]:
    with live_page(browser, tmp_path_factory.mktemp("live")) as live:
        yield live


@pytest.fixture
def live(_opened_once: LivePage) -> LivePage:
    """The page of a running job, as it is at the beginning."""
    _opened_once.begin()
    return _opened_once


@pytest.fixture(scope="module")
def _pipeline_opened_once(browser: Any) -> Iterator[PipelinePage]:
    with pipeline_page(browser) as opened_once:
        yield opened_once


@pytest.fixture
def pipeline(_pipeline_opened_once: PipelinePage) -> PipelinePage:
    """A page of a running job with four vertices, as it is at the beginning."""
    _pipeline_opened_once.job.current = pipeline_report()
    _pipeline_opened_once.page.set_viewport_size({"width": 1280, "height": 900})
    return _pipeline_opened_once
