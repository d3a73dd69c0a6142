"""Answers of Google Cloud Storage and Azure to a list and a read of one bucket, for obstore and for Arrow.

There is no server of either for Python that serves both clients. The process prints its port and serves until
its input ends. Arrow's client holds the interpreter's lock while it waits, so the server has its own process.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEYS = ["in/a.txt", "in/tab\t.txt", "in/x//y.txt", "./z.txt", "in/../w.txt"]
_DATE = "Mon, 01 Jan 2024 00:00:00 GMT"


def _google_list(keys: list[str]) -> str:
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{len(key)}</Size><ETag>x</ETag>"
        "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in keys
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"


def _google_object(key: str) -> dict[str, Any]:
    when = {"timeCreated": "2024-01-01T00:00:00Z", "updated": "2024-01-01T00:00:00Z"}
    return {"name": key, "bucket": "bucket", "size": str(len(key)), "generation": "1", **when}


def _azure_list(keys: list[str]) -> str:
    entries = "".join(
        f"<Blob><Name>{escape(key)}</Name><Properties><Creation-Time>{_DATE}</Creation-Time>"
        f"<Last-Modified>{_DATE}</Last-Modified><Etag>x</Etag><Content-Length>{len(key)}</Content-Length>"
        "<Content-Type>text/plain</Content-Type><BlobType>BlockBlob</BlobType><LeaseStatus>unlocked</LeaseStatus>"
        "<LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties></Blob>"
        for key in keys
    )
    head = '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Prefix></Prefix>'
    return f"{head}<Blobs>{entries}</Blobs><NextMarker /></EnumerationResults>"


class Answers(BaseHTTPRequestHandler):
    """Both stores; each object holds its own key."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        keys = [key for key in KEYS if key.startswith(query.get("prefix", ""))]
        if "list-type" in query:
            self._send(200, _google_list(keys).encode())
        elif query.get("comp") == "list":
            self._send(200, _azure_list(keys).encode())
        elif query.get("action") == "getAccessControl":
            self._send(400, b"", {"x-ms-error-code": "HierarchicalNamespaceNotEnabled"})
        elif url.path == "/storage/v1/b/bucket/o":
            self._send(200, json.dumps({"items": [_google_object(key) for key in keys]}).encode())
        elif url.path.startswith("/storage/v1/b/bucket/o/") and query.get("alt") != "media":
            self._object_of(url.path, metadata=True)
        else:
            self._object_of(url.path, metadata=False)

    do_HEAD = do_GET

    def _object_of(self, path: str, *, metadata: bool) -> None:
        lead = next(
            lead for lead in ("/storage/v1/b/bucket/o/", "/account/bucket/", "/bucket/") if lead in path
        )
        key = unquote(path.removeprefix(lead))
        if key not in KEYS:
            self._send(404, b"{}")
        elif metadata:
            self._send(200, json.dumps(_google_object(key)).encode())
        else:
            self._content(key.encode())

    def _content(self, content: bytes) -> None:
        headers = {"Last-Modified": _DATE, "x-ms-creation-time": _DATE, "ETag": '"x"'}
        headers |= {"x-ms-blob-type": "BlockBlob", "x-ms-server-encrypted": "true", "x-goog-generation": "1"}
        wanted = self.headers.get("Range") or self.headers.get("x-ms-range")
        if wanted is None:
            self._send(200, content, headers)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        end = min(int(last) + 1 if last else len(content), len(content))
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
        self._send(206, content[int(first) : end], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        every = {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        for name, value in {**every, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
