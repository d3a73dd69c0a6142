"""A server that shows ended jobs of a real storage, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving.client import Client
from serving.in_thread import served
from serving.reports import TOKEN, leave, report_of

from penstock import JobStatus
from penstock.actors.web.server import JobDirectory, WebServer


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with the reports of two jobs."""
    folder = tmp_path_factory.mktemp("storage")
    leave(
        folder,
        report_of("words-1f2e", "words", folder),
        report_of("hurt-9a8b", "<img src=x onerror=alert(1)>", folder, JobStatus.FINISHED),
    )
    return folder


@pytest.fixture(scope="module")
def server(storage: Path) -> Iterator[WebServer]:
    with served(JobDirectory(str(storage)), token=TOKEN, hosts=("penstock.example",)) as server:
        yield server


@pytest.fixture
def client(server: WebServer) -> Client:
    """A client with the standing token."""
    return Client(server.address, TOKEN)


@pytest.fixture
def stranger(server: WebServer) -> Client:
    """A client without a token."""
    return Client(server.address)
