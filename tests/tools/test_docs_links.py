"""A link is broken if its host says so. A host that does not answer says nothing about its links."""

from __future__ import annotations

import http.server
import socket
import threading
from pathlib import Path

import pytest
from docs_links import check, judged


def result(uri: str, status: str, info: str = "") -> dict[str, object]:
    return {"filename": "page.md", "lineno": 3, "status": status, "code": 0, "uri": uri, "info": info}


def test_every_link_that_works_is_a_host_that_was_reached() -> None:
    links = judged([result("https://a.example/1", "working"), result("https://b.example/", "redirected")])
    assert (links.exit_code, str(links)) == (0, "all links work; hosts: a.example, b.example")


def test_a_link_that_its_host_does_not_know_is_broken() -> None:
    gone = result("https://a.example/1", "broken", "404 Client Error: Not Found for url: https://a.example/1")
    links = judged([gone, result("nowhere.md", "broken")])
    assert links.exit_code == 1
    assert str(links).splitlines() == [
        "broken: https://a.example/1 in page.md:3 (404 Client Error: Not Found for url: https://a.example/1)",
        "broken: nowhere.md in page.md:3 (there is no such file)",
    ]


@pytest.mark.parametrize("status", ["broken", "timeout"])
def test_a_host_that_does_not_answer_says_nothing_about_its_links(status: str) -> None:
    silent = result("https://a.example/1", status, "HTTPSConnectionPool: Max retries exceeded")
    links = judged([silent, result("https://b.example/", "working")])
    assert links.exit_code == 2
    assert str(links) == "not checked, because the host did not answer: https://a.example/1 in page.md:3"


def test_without_the_internet_nothing_was_checked() -> None:
    silent = result("https://a.example/1", "broken", "HTTPSConnectionPool: Max retries exceeded")
    links = judged([silent, result("http://127.0.0.1:8265", "ignored")])
    assert links.exit_code == 2
    said = "no host answered (a.example): is there an internet connection? Nothing was checked"
    assert str(links) == said


class _Unknown(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Requests are no output of a test."""


def test_the_results_are_those_of_sphinx(tmp_path: Path) -> None:
    """One server knows no page; no server listens at the other port, whose socket is only bound."""
    pytest.importorskip("sphinx")
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Unknown) as server,
        socket.socket() as closed,
    ):
        closed.bind(("127.0.0.1", 0))
        gone, silent = (
            f"http://127.0.0.1:{server.server_port}/",
            f"http://localhost:{closed.getsockname()[1]}/",
        )
        (tmp_path / "conf.py").write_text("linkcheck_retries = 1\n")
        (tmp_path / "index.rst").write_text(f"Title\n=====\n\n`gone <{gone}>`_ and `silent <{silent}>`_\n")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        links = check(tmp_path, tmp_path / "links", tmp_path / "trees")
        server.shutdown()
        thread.join()
    assert links.exit_code == 1
    assert [each.partition(" ")[0] for each in links.broken] == [gone]
    assert [each.partition(" ")[0] for each in links.unreached] == [silent]
