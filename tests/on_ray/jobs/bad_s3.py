"""An S3 server whose answers are late, lost or refused: moto's server, and a proxy of our own in front of it.

The proxy passes every request on, unless a rule has a fault for it. It reads its rules from a file for each
request, so a test changes them while a job runs. Proxy and moto share a process of their own.

    python bad_s3.py FOLDER

writes `FOLDER/port` when it listens, and reads `FOLDER/rules.json`: a list of rules, each with

- `methods`: such as `["PUT"]`;
- `part`: a piece of the path that must be there;
- `fault`: one of `FAULTS`;
- `times`: how many requests it hits; without it all of them;
- `seconds`: how long `slow` and `hangs` last.

How often each fault has struck stands in `FOLDER/struck.json`.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

#: What may happen to a request.
#: Nothing is done: `refused` (503), `throttled` (503 SlowDown), `hangs` (no answer).
#: It is done: `slow` (late), `lost` (the connection ends without an answer), `lost_503` (the answer is 503),
#: `hangs_after` (no answer).
FAULTS: Final = ("refused", "throttled", "slow", "hangs", "lost", "lost_503", "hangs_after")
BUCKET: Final = "penstock"
_ERROR: Final = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{0}</Code><Message>{0}</Message></Error>'


#: The proxy writes these itself.
_OWN_HEADERS: Final = ("transfer-encoding", "connection", "content-length", "date", "server")


class Rules:
    """The rules of a folder, with how often each was used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()
        self._struck: Counter[str] = Counter()

    def of(self, method: str, path: str) -> dict[str, Any] | None:
        """The rule that strikes this request, which is counted; `None` if it goes through."""
        with self._lock:
            try:
                rules = json.loads((self._folder / "rules.json").read_text())
            except FileNotFoundError:
                return None
            for rule in rules:
                if method not in rule["methods"] or rule["part"] not in path:
                    continue
                key = json.dumps(rule, sort_keys=True)
                if self._used[key] >= rule.get("times", 1 << 60):
                    continue
                self._used[key] += 1
                self._struck[rule["fault"]] += 1
                temporary = self._folder / "struck.json.new"
                temporary.write_text(json.dumps(self._struck))
                temporary.replace(self._folder / "struck.json")
                return dict(rule)
        return None


class Proxy(BaseHTTPRequestHandler):
    """Passes a request on, or lets its fault happen."""

    protocol_version = "HTTP/1.1"
    rules: Rules
    port: int

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        rule = self.rules.of(self.command, self.path) or {"fault": None}
        fault, seconds = rule["fault"], float(rule.get("seconds", 3600.0))
        if fault in ("refused", "throttled"):
            self._refuse("SlowDown" if fault == "throttled" else "ServiceUnavailable")
            return
        if fault == "hangs":
            self._vanish(seconds)
            return
        if fault == "slow":
            time.sleep(seconds)
        status, headers, answer = self._passed_on(body)
        if fault == "lost_503":
            self._refuse("ServiceUnavailable")
        elif fault in ("lost", "hangs_after"):
            self._vanish(0.0 if fault == "lost" else seconds)
        else:
            self.send_response(status)
            length = str(len(answer))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in _OWN_HEADERS:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

    def _passed_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {n: v for n, v in self.headers.items() if n.lower() not in ("host", "connection")}
        upstream.request(self.command, self.path, body, headers | {"Host": f"127.0.0.1:{self.port}"})
        answer = upstream.getresponse()
        given = answer.read()
        upstream.close()
        return answer.status, answer.getheaders(), given

    def _refuse(self, code: str) -> None:
        text = _ERROR.format(code).encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _vanish(self, seconds: float) -> None:
        """No answer; the connection ends after some seconds."""
        time.sleep(seconds)
        self.close_connection = True
        self.connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve


def main() -> int:
    """Serve until this process is killed."""
    from moto.server import ThreadedMotoServer

    folder = Path(sys.argv[1])
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    _, Proxy.port = moto.get_host_and_port()
    Proxy.rules = Rules(folder)
    bucket = http.client.HTTPConnection("127.0.0.1", Proxy.port)
    bucket.request("PUT", f"/{BUCKET}")
    assert bucket.getresponse().status == 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    temporary = folder / "port.new"
    temporary.write_text(str(server.server_port))
    temporary.replace(folder / "port")
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
