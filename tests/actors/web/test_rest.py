"""REST's answers about jobs, checked against the OpenAPI description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from serving.client import Client

from penstock.actors.web.routes import ROUTES, description
from penstock.actors.web.server import Route

ROOT = Path(__file__).resolve().parents[3]
JOB = "/v1/jobs/words-1f2e"
DESCRIPTION = description()


def schema_of(path: str, method: str, status: str) -> dict[str, Any]:
    content = DESCRIPTION["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
    return {**content, "components": DESCRIPTION["components"]}


def test_the_file_in_the_documents_describes_these_paths() -> None:
    written = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    assert written == DESCRIPTION, "run: penstock ui --openapi > docs/openapi.json"


def test_every_path_is_described_once() -> None:
    described = {
        (method.upper(), path) for path, methods in DESCRIPTION["paths"].items() for method in methods
    }
    assert described == {(route.method, route.path) for route in ROUTES}
    names = [
        operation["operationId"] for each in DESCRIPTION["paths"].values() for operation in each.values()
    ]
    assert len(names) == len(set(names))


#: Paths that need no running job, as a client requests them.
ASKED = {
    "/v1/info": "/v1/info",
    "/v1/jobs/overview": "/v1/jobs/overview",
    "/v1/jobs/{job}": JOB,
    "/v1/jobs/{job}/plan": f"{JOB}/plan",
    "/v1/jobs/{job}/config": f"{JOB}/config",
    "/v1/jobs/{job}/exceptions": f"{JOB}/exceptions",
    "/v1/jobs/{job}/samples": f"{JOB}/samples",
    "/v1/jobs/{job}/checkpoints": f"{JOB}/checkpoints",
    "/v1/jobs/{job}/checkpoints/config": f"{JOB}/checkpoints/config",
    "/v1/jobs/{job}/checkpoints/details/{checkpoint}": f"{JOB}/checkpoints/details/3",
    "/v1/jobs/{job}/checkpoints/details/{checkpoint}/subtasks/{vertex}": (
        f"{JOB}/checkpoints/details/3/subtasks/count"
    ),
    "/v1/jobs/{job}/rescale-preview": f"{JOB}/rescale-preview?parallelism=%7B%22count%22%3A2%7D",
    "/v1/jobs/{job}/vertices/{vertex}/backpressure": f"{JOB}/vertices/count/backpressure",
    "/v1/jobs/{job}/vertices/{vertex}/watermarks": f"{JOB}/vertices/count/watermarks",
    "/v1/jobs/{job}/vertices/{vertex}/metrics": f"{JOB}/vertices/count/metrics",
}


@pytest.mark.parametrize("path", ASKED)
def test_answers_have_the_described_form(client: Client, path: str) -> None:
    jsonschema.validate(client.look(ASKED[path]), schema_of(path, "get", "200"))


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/jobs/nobody", 404, "nobody"),
        (f"{JOB}/checkpoints/details/99", 404, "no checkpoint '99'"),
        (f"{JOB}/vertices/nobody/watermarks", 404, "it has: lines, count"),
        (f"{JOB}/vertices/count/flamegraph", 409, "has no process"),
        (f"{JOB}/triggers/0", 404, "no request"),
        (f"{JOB}/log", 409, "logs stayed on its nodes"),
        (f"{JOB}/log?offset=-1", 400, "?offset="),
        (f"{JOB}/state", 409, "there is no snapshot"),
        (f"{JOB}/state/count/total", 400, "?key="),
        (f"{JOB}/rescale-preview", 400, "new parallelism"),
        (f"{JOB}/rescale-preview?parallelism=%7B%22count%22%3A1000%7D", 400, "128"),
        (f"{JOB}/rescale-preview?parallelism=%7B%22lins%22%3A1%7D", 400, "did you mean 'lines'"),
        ("/v1/nowhere", 404, "/v1/nowhere"),
    ],
)
def test_what_is_not_there_is_said(client: Client, path: str, status: int, says: str) -> None:
    answer = client.get(path)
    assert answer.status == status, answer.body
    assert says in answer.errors
    jsonschema.validate(answer.json, {**DESCRIPTION["components"]["schemas"]["Errors"]})


def test_jobs_are_listed_with_the_newest_first(client: Client) -> None:
    jobs = client.look("/v1/jobs/overview")["jobs"]
    assert {job["job_id"]: (job["status"], job["live"], job["restarts"]) for job in jobs} == {
        "words-1f2e": ("failed", False, 1),
        "hurt-9a8b": ("finished", False, 1),
    }
    submitted = [job["submitted_at"] for job in jobs]
    assert submitted == sorted(submitted, reverse=True)


def test_a_job_is_found_by_its_name_as_on_the_command_line(client: Client) -> None:
    found = client.look("/v1/jobs/words")
    assert found["report"]["job_id"] == "words-1f2e"
    assert (found["age"], found["answering"], found["live"]) == (0.0, True, False)


def test_checkpoints_come_with_percentiles_and_the_newest_first(client: Client) -> None:
    found = client.look(f"{JOB}/checkpoints")
    assert [each["checkpoint_id"] for each in found["history"]] == [3, 2, 1]
    assert found["latest"]["completed"]["checkpoint_id"] == 3
    assert found["latest"]["failed"]["checkpoint_id"] == 2
    assert found["latest"]["savepoint"] is None
    duration = found["summary"]["end_to_end_duration"]
    assert (duration["min"], duration["p50"], duration["p99"], duration["max"]) == (0.1, 0.1, 0.3, 0.3)


def test_the_preview_of_a_rescale_counts_key_groups_that_move(client: Client) -> None:
    found = client.look(f"{JOB}/rescale-preview?parallelism=%7B%22count%22%3A2%7D")
    (vertex,) = found["vertices"]
    assert (vertex["from"], vertex["to"], vertex["key_groups"]) == (4, 2, 128)
    assert 0 < vertex["key_groups_moved"] < 128
    assert found["restarts"] == ["lines", "count"]
    assert vertex["has_keyed_state"]
    assert vertex["text"] == f"{vertex['key_groups_moved']} of 128 key groups move"


def test_settings_are_shown_whole_and_those_of_checkpoints_alone(client: Client) -> None:
    assert client.look(f"{JOB}/config")["config"]["advanced.credits"] == "8"
    assert client.look(f"{JOB}/checkpoints/config")["config"] == {"every": "10.0"}


def test_a_failed_job_says_why(client: Client) -> None:
    found = client.look(f"{JOB}/exceptions")
    assert found["root-exception"]["root"]["message"] == "operator 'count' broke"
    assert len(found["history"]) == 1


def test_events_of_an_ended_job_are_its_report_and_the_end(client: Client) -> None:
    events = list(client.events(f"{JOB}/events"))
    assert [name for name, _ in events] == ["report", "end"]
    assert events[0][1] == client.look(JOB)


def test_a_body_of_another_form_is_refused_by_name(client: Client) -> None:
    answer = client.change("PUT", f"{JOB}/resource-requirements", {"parallelism": {"count": "4"}})
    assert answer.status == 400
    assert "parallelism.count" in answer.errors


def test_nothing_can_be_asked_of_a_job_that_has_ended(client: Client) -> None:
    for route in ROUTES:
        if route.changes and not route.is_open:
            answer = client.change(route.method, _filled(route), _body(route))
            assert answer.status == 409, route.path
            assert "has ended: failed" in answer.errors


def _filled(route: Route) -> str:
    return route.path.replace("{job}", "words-1f2e") + ("?mode=cancel" if route.method == "PATCH" else "")


def _body(route: Route) -> Any:
    return {"parallelism": {"count": 2}} if route.method == "PUT" else {}
