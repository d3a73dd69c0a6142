"""Asks a server over real sockets; every header is the test's own choice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

#: Seconds for anything to happen on a busy machine.
PATIENCE = 240.0


@dataclass(frozen=True)
class Answer:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def errors(self) -> str:
        """The only error that it names."""
        (text,) = self.json["errors"]
        return str(text)


class Client:
    """Asks the server at an address; `token` is sent as that of a program."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        """Ask; `Some_Header="..."` adds a header, and `None` leaves one out."""
        connection = self._connection()
        try:
            response = self._send(connection, method, path, body, headers)
            return Answer(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def look(self, path: str) -> Any:
        """The JSON of a path that must answer."""
        answer = self.get(path)
        assert answer.status == 200, answer.body
        return answer.json

    def change(self, method: str, path: str, body: Any = None) -> Answer:
        """A request that changes something, as a program sends it."""
        return self.ask(method, path, {} if body is None else body, X_Penstock="1")

    def carry_out(self, job: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Begin a request to a job, and wait for its end; its operation."""
        begun = self.change(method, f"/v1/jobs/{job}{path}", body)
        assert begun.status == 202, begun.body
        deadline = time.monotonic() + PATIENCE
        while True:
            seen = self.look(f"/v1/jobs/{job}/triggers/{begun.json['request-id']}")
            if seen["status"]["id"] == "COMPLETED":
                return dict(seen["operation"])
            assert time.monotonic() < deadline, f"{method} {path} has not ended"
            time.sleep(0.05)

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Server-sent events with their data, until the server ends them."""
        connection = self._connection()
        try:
            response = self._send(connection, "GET", path, None, {})
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"].startswith("text/event-stream")
            name = ""
            for raw in response:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def _send(
        self, connection: HTTPConnection, method: str, path: str, body: Any, headers: Mapping[str, str | None]
    ) -> HTTPResponse:
        given = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.putrequest(method, path, skip_host="Host" in given)
        data = b"" if body is None else json.dumps(body).encode()
        for name, value in {"Content-Length": str(len(data)), **given}.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(data)
        return connection.getresponse()
