"""Traces of a real job reach an OpenTelemetry collector, here a small one that keeps what it gets."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="without penstock[otel]")

PROGRAM = """
import sys
from pathlib import Path
from penstock.cluster import start_local
from jobs.driving import after_checkpoints, finish, kill_subtask, submit, wait_until
from jobs.talking import talking_job

start_local(num_cpus=4)
job = submit(talking_job(Path(sys.argv[1]), 500, 2_000.0, attempt=3))
after_checkpoints(job, 1)
kill_subtask(job, "largest")
wait_until(job, "a second attempt", lambda report: report.statistics.attempt == 2)
after_checkpoints(job, job.report().statistics.completed_checkpoints + 1)
job.rescale({"largest": 3})
finish(job)
"""


class Collector:
    """A collector on a port of its own."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = resource.resource.attributes
            self.resources.append({each.key: each.value.string_value for each in attributes})
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def parts_of(self, name: str) -> list[list[str]]:
        """The names of what each span of a name consists of."""
        wholes = [span for span in self.spans if span.name == name]
        return [
            [part.name for part in self.spans if part.parent_span_id == whole.span_id] for whole in wholes
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.mark.long
def test_checkpoints_a_restart_and_a_rescale_of_a_real_job_reach_a_collector(
    tmp_path: Path, collector: Collector
) -> None:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={
            **mine,
            "RAY_raylet_start_wait_time_s": "120",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [sorted(parts) for parts in collector.parts_of("start")] == [["deploying", "initialising"]]
    (restart,) = collector.parts_of("restart")
    assert {"failing", "deploying"} <= set(restart)
    (rescale,) = collector.parts_of("rescale")
    assert {"rescaling", "deploying", "initialising"} <= set(rescale)
    checkpoints = collector.parts_of("checkpoint")
    assert sorted(checkpoints[0]) == ["largest[0]", "largest[1]", "numbers[0]", "numbers[1]"]
    assert {tuple(parts) for parts in collector.parts_of("largest[0]")} == {
        ("start delay", "alignment", "synchronous part", "asynchronous part")
    }
    assert {about["service.name"] for about in collector.resources} == {"penstock"}
    assert {about["penstock.job.name"] for about in collector.resources} == {"talker"}
