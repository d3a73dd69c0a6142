"""Attacks on the server, one by one, over real sockets."""

from __future__ import annotations

from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from serving.client import Answer, Client
from serving.in_thread import served

from penstock.actors.web.access import Access, check_bind
from penstock.actors.web.routes import ROUTES
from penstock.actors.web.server import JobDirectory, WebServer
from penstock.runtime.errors import ConfigurationError

EVIL = "http://evil.example"
JOB = "/v1/jobs/words-1f2e"


def path_of(route_path: str) -> str:
    return route_path.replace("{job}", "words-1f2e").replace("{", "").replace("}", "")


def begin_session(client: Client, token: str) -> Answer:
    return client.ask(
        "POST", "/v1/session", {"token": token}, X_Penstock="1", Origin=client.address.rstrip("/")
    )


def cookie_of(answer: Answer) -> str:
    (morsel,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    return f"{morsel.key}={morsel.value}"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_path_answers_to_a_name_that_is_not_its_own(client: Client, route: object) -> None:
    answer = client.ask(route.method, path_of(route.path), Host="evil.example:80", X_Penstock="1")
    assert answer.status == 403
    assert "evil.example" in answer.errors


@pytest.mark.parametrize("path", ["/", "/index.html", "/nowhere"])
def test_files_do_not_answer_to_a_name_that_is_not_their_own(stranger: Client, path: str) -> None:
    assert stranger.get(path, Host="evil.example").status == 403


def test_a_name_that_was_allowed_is_answered(client: Client) -> None:
    assert client.get("/v1/info", Host=f"penstock.example:{client.port}").status == 200
    assert client.get("/v1/info", Host="penstock.example:1").status == 403


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_path_answers_a_page_from_elsewhere(client: Client, route: object) -> None:
    answer = client.ask(route.method, path_of(route.path), {}, Origin=EVIL, X_Penstock="1")
    assert answer.status == 403
    assert EVIL in answer.errors
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_browser_that_asks_whether_it_may_is_told_nothing(stranger: Client) -> None:
    answer = stranger.ask("OPTIONS", JOB, Origin=EVIL, Access_Control_Request_Method="PATCH")
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if not route.is_open],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_no_path_answers_without_a_token(stranger: Client, route: object) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"penstock-{stranger.port}=wrong"}):
        answer = stranger.ask(route.method, path_of(route.path), {}, X_Penstock="1", **headers)
        assert answer.status == 401, headers
        assert "penstock ui" in answer.errors


def test_bytes_that_are_no_text_are_no_token(stranger: Client) -> None:
    for headers in ({"Authorization": "Bearer \xff\xfe"}, {"Cookie": f"penstock-{stranger.port}=\xff"}):
        assert stranger.get("/v1/info", **headers).status == 401, headers
    assert begin_session(stranger, "\xff\u20ac").status == 401


def test_the_printed_address_begins_one_session_and_no_second_one(
    server: WebServer, stranger: Client
) -> None:
    login = server.access.new_login()
    first = begin_session(stranger, login)
    assert first.status == 204
    assert stranger.get("/v1/info", Cookie=cookie_of(first)).status == 200
    second = begin_session(stranger, login)
    assert second.status == 401
    assert "used before" in second.errors
    assert "Set-Cookie" not in second.headers


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(server: WebServer, stranger: Client) -> None:
    cookie = begin_session(stranger, server.access.new_login()).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert f"penstock-{stranger.port}=" in cookie


def test_a_session_of_one_server_is_none_of_another(server: WebServer, storage: Path) -> None:
    cookie = cookie_of(begin_session(Client(server.address), server.access.new_login()))
    value = cookie.partition("=")[2]
    with served(JobDirectory(str(storage))) as other:
        client = Client(other.address)
        assert client.get("/v1/info", Cookie=f"penstock-{client.port}={value}").status == 401


def test_a_change_needs_a_header_that_no_form_can_send(client: Client) -> None:
    answer = client.ask("PATCH", f"{JOB}?mode=cancel", {})
    assert answer.status == 403
    assert "X-Penstock" in answer.errors


def test_a_change_by_cookie_needs_the_origin_of_the_page(server: WebServer, stranger: Client) -> None:
    cookie = cookie_of(begin_session(stranger, server.access.new_login()))
    bare = stranger.ask("PATCH", f"{JOB}?mode=cancel", {}, Cookie=cookie, X_Penstock="1")
    assert bare.status == 403
    assert "Origin" in bare.errors
    own = stranger.ask(
        "PATCH",
        f"{JOB}?mode=cancel",
        {},
        Cookie=cookie,
        X_Penstock="1",
        Origin=stranger.address.rstrip("/"),
    )
    assert own.status == 409
    assert "has ended" in own.errors


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_read_only_refuses_every_change(storage: Path, method: str) -> None:
    with served(JobDirectory(str(storage)), token="0123456789abcdef", read_only=True) as server:
        client = Client(server.address, "0123456789abcdef")
        assert client.look("/v1/info")["read_only"]
        for route in ROUTES:
            if route.method == method and not route.is_open:
                answer = client.change(method, path_of(route.path))
                assert answer.status == 403
                assert "--read-only" in answer.errors


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fserver.py",
        "/%2e%2e/server.py",
        "/vendor/../../server.py",
        "/v1/jobs/..%2f..%2fetc%2fpasswd",
        "/v1/jobs/..",
        "/v1/jobs/%2e%2e%2fwords-1f2e",
        "/v1/jobs/words-1f2e%00",
    ],
)
def test_no_path_leads_out_of_the_page_or_of_the_storage(client: Client, storage: Path, path: str) -> None:
    (storage.parent / "status.json").write_text("{}")
    answer = client.get(path)
    assert answer.status in (400, 403, 404)
    assert b"passwd" not in answer.body.replace(b"etc/passwd", b"").replace(b"etc%2fpasswd", b"")
    assert b"WebServer" not in answer.body


def test_every_answer_forbids_what_a_page_must_not_do(client: Client) -> None:
    for path in ("/v1/info", "/v1/nowhere", JOB, "/nowhere"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self'"), path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
    assert client.get(JOB).headers["Cache-Control"] == "no-store"


def test_what_users_wrote_is_json_and_never_markup(client: Client) -> None:
    answer = client.get("/v1/jobs/hurt-9a8b")
    assert answer.json["report"]["name"] == "<img src=x onerror=alert(1)>"
    assert answer.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "node-7"])
def test_beyond_loopback_it_does_not_listen_without_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="--token-file"):
        check_bind(host, None)
    check_bind(host, "0123456789abcdef")


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 16"):
        Access(1, ["127.0.0.1"], "secret")


def test_a_request_that_is_too_large_is_refused(client: Client) -> None:
    answer = client.change("POST", f"{JOB}/savepoints", {"target-directory": "x" * 100_000})
    assert answer.status in (400, 413)
