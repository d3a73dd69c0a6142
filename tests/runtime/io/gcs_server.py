"""The part of Google Cloud Storage's XML API that obstore uses, over HTTP, with faults on demand.

No server of GCS can be had here (docs/proofs.md tells which were tried). So this one stands for it: put with
a generation as the condition, get, head, delete, and list. A fault strikes the next requests of a method.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET: Final = "penstock"
#: `refused` (503) and `hangs` (no answer) do nothing. `lost` (the connection ends), `lost_503` and
#: `hangs_after` (no answer) come when it is done.
FAULTS: Final = ("refused", "lost", "lost_503", "hangs", "hangs_after")


class GcsServer(ThreadingHTTPServer):
    """A server on a free port of this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.objects: dict[str, tuple[int, bytes]] = {}
        self.generations = 0
        self.faults: list[tuple[str, str]] = []
        self.struck: list[tuple[str, str]] = []
        self.let_go = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def strike(self, method: str, fault: str, times: int = 1) -> None:
        """Let a fault strike the next requests of a method."""
        self.faults += [(method, fault)] * times

    def fault_of(self, method: str) -> str | None:
        with self.lock:
            for each in self.faults:
                if each[0] == method:
                    self.faults.remove(each)
                    self.struck.append(each)
                    return each[1]
        return None


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GcsServer

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.fault_of(self.command)
        if fault == "refused":
            self._answer(503)
        elif fault == "hangs":
            self._vanish(hang=True)
        else:
            with self.server.lock:
                answer = self._done(body)
            if fault == "lost_503":
                self._answer(503)
            elif fault is not None:
                self._vanish(hang=fault == "hangs_after")
            else:
                self._answer(*answer)

    def _done(self, body: bytes) -> tuple[int, bytes, int]:
        """Status, content, generation."""
        objects, address = self.server.objects, urlsplit(self.path)
        name = unquote(address.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if not name:
            prefix = parse_qs(address.query).get("prefix", [""])[0]
            return 200, _listed(prefix, objects), 0
        generation, content = objects.get(name, (0, b""))
        if self.command == "PUT":
            wanted = self.headers.get("x-goog-if-generation-match")
            if wanted is not None and int(wanted) != generation:
                return 412, b"", 0
            self.server.generations += 1
            objects[name] = self.server.generations, body
            return 200, b"", self.server.generations
        if not generation:
            return 404, b"", 0
        if self.command == "DELETE":
            del objects[name]
            return 204, b"", 0
        return 200, content, generation

    def _answer(self, status: int, content: bytes = b"", generation: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{generation}"')
        self.send_header("x-goog-generation", str(generation))
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 12:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _vanish(self, *, hang: bool) -> None:
        if hang:
            self.server.let_go.wait()
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_DELETE = _serve


def _listed(prefix: str, objects: dict[str, tuple[int, bytes]]) -> bytes:
    found = "".join(
        f"<Contents><Key>{name}</Key><Size>{len(content)}</Size><ETag>&quot;{generation}&quot;</ETag>"
        "<LastModified>2026-11-23T12:00:00.000Z</LastModified></Contents>"
        for name, (generation, content) in sorted(objects.items())
        if name.startswith(prefix)
    )
    return f"<ListBucketResult><Name>{BUCKET}</Name>{found}</ListBucketResult>".encode()


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """A server that ends with this block; what hangs comes back then."""
    server = GcsServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()
