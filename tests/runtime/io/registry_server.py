"""A schema registry on loopback, with the REST interface of Confluent's.

`make_confluent_bytes.py` runs Confluent's own serialisers against it.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_TYPE = "application/vnd.schemaregistry.v1+json"


class Refusal(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Registry:
    """The schemas, and what the next requests are to meet.

    Attributes:
        authorization: The header that requests must have.
        failures: Statuses of the next answers; 0 closes the connection without one.
        requests: Method and path of each request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.authorization: str | None = None
        self.failures: list[int] = []
        self.requests: list[tuple[str, str]] = []
        #: While it is not set, no request is answered.
        self.answers = threading.Event()
        self.answers.set()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema, and return its id."""
        with self._lock:
            return self._register(subject, self._described(schema, kind, references))

    def answer(self, method: str, path: str, body: Any) -> Any:
        with self._lock:
            match method, [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
                case "GET", ["subjects"]:
                    return sorted(self._subjects)
                case "GET", ["schemas", "ids", schema_id]:
                    if not 1 <= int(schema_id) <= len(self._schemas):
                        raise Refusal(404, 40403, f"Schema {schema_id} not found")
                    return _shown(self._schemas[int(schema_id) - 1])
                case "POST", ["subjects", subject, "versions"]:
                    return {"id": self._register(subject, self._of_body(body))}
                case "POST", ["subjects", subject]:
                    return self._version(subject, self._found(subject, self._of_body(body)))
                case "GET", ["subjects", subject, "versions"]:
                    return list(range(1, len(self._versions(subject)) + 1))
                case "GET", ["subjects", subject, "versions", version]:
                    return self._version(subject, self._at(subject, version))
                case _:
                    raise Refusal(404, 404, "HTTP 404 Not Found")

    def _of_body(self, body: Any) -> dict[str, Any]:
        return self._described(body["schema"], body.get("schemaType") or "AVRO", body.get("references") or ())

    def _described(self, schema: str, kind: str, references: Any) -> dict[str, Any]:
        if kind == "AVRO":
            try:
                schema = json.dumps(json.loads(schema), separators=(",", ":"))
            except ValueError as error:
                raise Refusal(422, 42201, f"Invalid schema {schema}") from error
        return {"schema": schema, "schemaType": kind, "references": list(references)}

    def _register(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self._schemas:
            self._schemas.append(schema)
        schema_id = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def _versions(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise Refusal(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _found(self, subject: str, schema: dict[str, Any]) -> int:
        versions = self._versions(subject)
        schema_id = self._schemas.index(schema) + 1 if schema in self._schemas else 0
        if schema_id not in versions:
            raise Refusal(404, 40403, "Schema not found")
        return versions.index(schema_id)

    def _at(self, subject: str, version: str) -> int:
        versions = self._versions(subject)
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            raise Refusal(404, 40402, f"Version {version} not found.")
        return number - 1

    def _version(self, subject: str, at: int) -> dict[str, Any]:
        schema_id = self._subjects[subject][at]
        return {
            "subject": subject,
            "version": at + 1,
            "id": schema_id,
            **_shown(self._schemas[schema_id - 1]),
        }


def _shown(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema as answers show it: AVRO is not named."""
    return {
        name: value
        for name, value in schema.items()
        if value and not (name == "schemaType" and value == "AVRO")
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry

    def do_GET(self) -> None:
        self._handle(None)

    def do_POST(self) -> None:
        self._handle(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def _handle(self, body: Any) -> None:
        registry = self.registry
        registry.requests.append((self.command, self.path))
        registry.answers.wait()
        failure = registry.failures.pop(0) if registry.failures else None
        if failure == 0:
            self.close_connection = True
            return
        if failure is not None:
            self._send(failure, {"error_code": 50000 + failure, "message": "Error in the backend datastore"})
        elif registry.authorization not in (None, self.headers.get("Authorization")):
            self._send(401, {"error_code": 401, "message": "Unauthorized"})
        else:
            try:
                self._send(200, registry.answer(self.command, self.path, body))
            except Refusal as refusal:
                self._send(refusal.status, {"error_code": refusal.code, "message": str(refusal)})

    def _send(self, status: int, found: Any) -> None:
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have left, or that do not trust the certificate."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """Run a registry on a free port of loopback, with TLS if there is a context for it."""
    registry = Registry()
    handler = type("_Bound", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if tls is None else "https"
    registry.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
