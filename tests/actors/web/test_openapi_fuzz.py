"""Schemathesis sends requests that the description allows or forbids: no answer is a 5xx or has another form.

Over real sockets, to a server with a running job and to one with ended jobs. Random ids of jobs and vertices
seldom exist, so many requests get a real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from serving.acting import JOB, STACKS, acting_job, leave_snapshot
from serving.client import Client
from serving.in_thread import served
from serving.reports import TOKEN, leave, report_of

from penstock.actors.client.logs import LogLine
from penstock.actors.shared import node_processes
from penstock.actors.web import inspections
from penstock.actors.web.routes import description
from penstock.actors.web.server import JobDirectory

schemathesis = pytest.importorskip("schemathesis")
conformance = pytest.importorskip("schemathesis.specs.openapi.checks")

#: Streams that last as long as their job, or for ever.
ENDLESS = ("/v1/events", "/v1/jobs/{job}/events")
NODE = "0a1b2c3d4e5f"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "X-Penstock": "1"}
KNOWN = {
    "job": [JOB, "hurt-9a8b"],
    "vertex": ["lines", "count"],
    "operator": ["largest", "numbers"],
    "state": ["reduce"],
    "checkpoint": ["1", "2", "4"],
}
QUERIES = {
    "parallelism": [
        '{"count": 3}',
        '{"count": 0}',
        "{}",
        '{"count": true}',
        "[" * 2_000,
        '{"count": 1' + "0" * 40 + "}",
    ],
    "key": ["3", '"3"', "[1, 2]", "{}", "NaN", "1e999", "9" * 40, "[" * 2_000, "null"],
    "get": ["0.records_in", "0.rate.busy,1.rate.busy"],
    "subtask": ["0", "3", "٣"],
    "offset": ["0", "1", "9" * 30, "9" * 5_000],
    "seconds": ["1", "nan", "inf", "-1"],
    "mode": ["cancel"],
}
SCHEMA = schemathesis.openapi.from_dict(description())
OPERATIONS = [each.ok() for each in SCHEMA.get_all_operations() if each.ok().path not in ENDLESS]
MODES = list(schemathesis.GenerationMode)
CHECKS = [
    schemathesis.checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


class Directory(JobDirectory):
    """A directory with a running job and ended ones."""

    def __init__(self, storage: Path) -> None:
        super().__init__(str(storage))
        self.job = acting_job()
        self.job.current = leave_snapshot(storage)
        self.job.lines.append(LogLine("2026-01-02T03:04:05.678901Z", "count", 0, "out", "Hello"))

    def find(self, job: str) -> Any:
        return self.job if job == JOB else super().find(job)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("storage")
    leave(folder, report_of("hurt-9a8b", "<img src=x onerror=alert(1)>", folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_processes, "own_node", lambda: NODE)
        patch.setattr(inspections, "take_stacks", lambda *asked: (list(STACKS), ""))
        with served(Directory(folder), token=TOKEN) as server:
            yield server.address.rstrip("/")


def hit(data: st.DataObject, given_: dict[str, Any] | None, known: dict[str, list[str]]) -> None:
    """Replace some of the values by existing ids."""
    for name in given_ or {}:
        if name in known and data.draw(st.integers(0, 3)):
            given_[name] = data.draw(st.sampled_from(known[name]))  # type: ignore[index]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.label)
def test_no_request_leads_to_a_server_error_or_to_an_answer_of_another_form(
    address: str, operation: Any
) -> None:
    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=data.draw(st.sampled_from(MODES))))
        hit(data, case.path_parameters, KNOWN)
        hit(data, case.query, QUERIES)
        case.call_and_validate(base_url=address, headers=HEADERS, checks=CHECKS)

    ask()


ASKED = {
    "key": f"/v1/jobs/{JOB}/state/largest/reduce",
    "parallelism": f"/v1/jobs/{JOB}/rescale-preview",
    "subtask": f"/v1/jobs/{JOB}/vertices/count/flamegraph",
    "seconds": f"/v1/jobs/{JOB}/vertices/count/flamegraph",
    "offset": f"/v1/jobs/{JOB}/log",
    "get": f"/v1/jobs/{JOB}/vertices/count/metrics",
}


@pytest.mark.parametrize("name", ASKED)
def test_odd_values_are_refused_or_answered(address: str, name: str) -> None:
    client = Client(f"{address}/", TOKEN)
    for value in QUERIES[name]:
        answer = client.get(f"{ASKED[name]}?{urlencode({name: value})}")
        assert answer.status in (200, 400, 404, 409), (value[:50], answer.status, answer.body[:300])
        json.loads(answer.body, parse_constant=pytest.fail)
