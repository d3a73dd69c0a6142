"""An HTTP server on loopback that carries out each idempotency key once, and fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Requests that came, and answers to the next ones.

    Attributes:
        failures: Statuses of the next answers; 0 carries the request out, and closes the connection without
            an answer.
        requests: Key, body and headers of each request that was answered with success or not at all.
        carried_out: Body by key.
    """

    def __init__(self) -> None:
        self.url = ""
        self.failures: list[int] = []
        self.requests: list[tuple[str, bytes, dict[str, str]]] = []
        self.carried_out: dict[str, bytes] = {}
        self.most_at_once = 0
        #: While it is not set, no request is answered.
        self.answers = threading.Event()
        self.answers.set()
        self._at_once = 0
        self._lock = threading.Lock()

    def status_of(self, key: str, body: bytes, headers: dict[str, str]) -> int:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self.answers.wait(60)
        with self._lock:
            self._at_once -= 1
            status = self.failures.pop(0) if self.failures else 200
            if status in (0, 200):
                self.requests.append((key, body, headers))
                self.carried_out.setdefault(key, body)
            return status

    @property
    def bodies(self) -> list[bytes]:
        """Bodies that were carried out, sorted."""
        return sorted(self.carried_out.values())


@contextmanager
def running_receiver(port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.status_of(self.headers["Idempotency-Key"], body, dict(self.headers.items()))
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_POST

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        #: All connections of two subtasks: the client of a dropped one would wait for a second.
        request_queue_size = 64

    server = Server(("127.0.0.1", port), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/orders"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
