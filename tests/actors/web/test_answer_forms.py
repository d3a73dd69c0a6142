"""Every answer about a running job has exactly the described properties."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ray.exceptions import RaySystemError
from serving.acting import JOB, STACKS, ActingJob, acting_job, leave_snapshot
from serving.client import PATIENCE, Client
from serving.in_thread import served
from serving.reports import TOKEN
from serving.scripted import ScriptedDirectory

from penstock import JobStatus
from penstock.actors.client.logs import LogLine
from penstock.actors.shared import node_processes
from penstock.actors.shared.job_report import JobReport
from penstock.actors.web import inspections
from penstock.actors.web.routes import description
from penstock.runtime.errors import CheckpointError, DeploymentError, JobTimeoutError, RequestLostError
from penstock.runtime.operators.metrics import Gauge, Histogram, Metrics, OperatorStatistics
from penstock.runtime.task.statistics import OutputFill

PREFIX = "/v1/jobs/{job}"
NODE = "0a1b2c3d4e5f"


def exact(part: Any) -> Any:
    """The same schema, which allows only the properties that it names."""
    if isinstance(part, list):
        return [exact(each) for each in part]
    if not isinstance(part, dict):
        return part
    more = {"additionalProperties": False} if isinstance(part.get("properties"), dict) else {}
    return {**{name: exact(each) for name, each in part.items()}, **more}


DESCRIPTION = exact(description())
REPORT = jsonschema.Draft202012Validator(
    {"$ref": "#/components/schemas/JobReport", "components": DESCRIPTION["components"]}
)


def conform(answer: Any, method: str, path: str, status: int) -> None:
    responses = DESCRIPTION["paths"][path][method.lower()]["responses"]
    schema = responses[str(status)]["content"]["application/json"]["schema"]
    jsonschema.validate(answer, {**schema, "components": DESCRIPTION["components"]})


@pytest.fixture
def job(tmp_path: Any) -> ActingJob:
    """A running job with metrics of the user, a snapshot, and lines in its log."""
    job = acting_job()
    job.current = leave_snapshot(tmp_path)
    metrics = Metrics()
    metrics.ask(Gauge, "queue").set(2.5)
    metrics.ask(Histogram, "cents").update(7)
    counted = {"count": OperatorStatistics(9, 8).with_metrics(metrics.statistics())}
    fill = OutputFill("count", "lines", None, 0, 0, 8, 0, (4, 2), (0, 0))
    job.current = replace(
        job.current,
        subtasks=tuple(
            replace(each, statistics=replace(each.statistics, operators=counted, outputs=(fill,)))
            for each in job.current.subtasks
            if each.statistics is not None
        ),
        failure=job.current.failures[0],
    )
    job.lines.append(LogLine("2026-01-02T03:04:05.678901Z", "count", 0, "out", "Hello"))
    job.lines.append(LogLine("2026-01-02T03:04:05.678901Z", "job-master", None, "log", "Begun"))
    return job


@pytest.fixture
def client(job: ActingJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(node_processes, "own_node", lambda: NODE)
    monkeypatch.setattr(inspections, "take_stacks", lambda *asked: (list(STACKS), ""))
    with served(ScriptedDirectory(job), token=TOKEN) as server:
        yield Client(server.address, TOKEN)


LOOKS = {
    "": "",
    "/plan": "/plan",
    "/config": "/config",
    "/exceptions": "/exceptions",
    "/samples": "/samples",
    "/checkpoints": "/checkpoints",
    "/checkpoints/config": "/checkpoints/config",
    "/checkpoints/details/{checkpoint}": "/checkpoints/details/1",
    "/checkpoints/details/{checkpoint}/subtasks/{vertex}": "/checkpoints/details/1/subtasks/count",
    "/log": "/log",
    "/state": "/state",
    "/state/{operator}/{state}": "/state/largest/reduce?key=3",
    "/rescale-preview": "/rescale-preview?parallelism=%7B%22count%22%3A2%7D",
    "/edges/{edge}/records": "/edges/0/records",
    "/vertices/{vertex}/backpressure": "/vertices/count/backpressure",
    "/vertices/{vertex}/watermarks": "/vertices/count/watermarks",
    "/vertices/{vertex}/samples": "/vertices/count/samples",
    "/vertices/{vertex}/metrics": "/vertices/count/metrics?get=0.count.cents_p50",
    "/vertices/{vertex}/flamegraph": "/vertices/count/flamegraph?seconds=1",
}
CHANGES = {
    ("POST", "/checkpoints"): {"full": True},
    ("POST", "/savepoints"): {"target-directory": None},
    ("POST", "/stop"): {"drain": False},
    ("PUT", "/resource-requirements"): {"parallelism": {"count": 2}},
    ("PATCH", "?mode=cancel"): {},
}


@pytest.mark.parametrize("path", LOOKS)
def test_what_a_job_is_asked_has_the_described_form(client: Client, path: str) -> None:
    answer = client.look(f"/v1/jobs/{JOB}{LOOKS[path]}")
    conform(answer, "GET", f"{PREFIX}{path}", 200)
    assert answer  # empty lists would conform, too
    assert all(
        part != [] for name, part in answer.items() if name not in ("samples", "silent_nodes", "masters")
    )


def trigger(client: Client, method: str, path: str) -> tuple[str, Any]:
    """Begin a request; return the path of its trigger, and the trigger's first answer."""
    begun = client.change(method, f"/v1/jobs/{JOB}{path}", CHANGES[method, path])
    assert begun.status == 202
    conform(begun.json, method, f"{PREFIX}{path.partition('?')[0]}", 202)
    at = "savepoints" if path == "/savepoints" else "triggers"
    asked = f"/v1/jobs/{JOB}/{at}/{begun.json['request-id']}"
    seen = client.look(asked)
    conform(seen, "GET", f"{PREFIX}/{at}/{{trigger}}", 200)
    return asked, seen


def ended(client: Client, asked: str) -> Mapping[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while (seen := client.look(asked))["status"]["id"] != "COMPLETED":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    conform(seen, "GET", f"{PREFIX}/triggers/{{trigger}}", 200)
    operation: Mapping[str, Any] = seen["operation"]
    return operation


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_requests_are_accepted_go_on_and_end(client: Client, job: ActingJob, method: str, path: str) -> None:
    job.goes_on.clear()
    asked, seen = trigger(client, method, path)
    assert seen == {"status": {"id": "IN_PROGRESS"}}
    job.goes_on.set()
    assert "result" in ended(client, asked)


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_requests_that_fail_say_why(client: Client, job: ActingJob, method: str, path: str) -> None:
    job.failure = CheckpointError("the storage is full")
    asked, _ = trigger(client, method, path)
    cause = {"class": "CheckpointError", "message": "the storage is full", "outcome": "failed"}
    assert ended(client, asked) == {"failure-cause": cause}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/savepoints", {"cancelJob": True}),
        ("/savepoints", {"target_directory": "/there"}),
        ("/stop", {"mode": "drain"}),
        ("/checkpoints", {"Full": True}),
    ],
)
def test_a_field_that_a_request_does_not_know_is_refused_by_name(
    client: Client, job: ActingJob, path: str, body: dict[str, Any]
) -> None:
    answer = client.change("POST", f"/v1/jobs/{JOB}{path}", body)
    assert answer.status == 400
    assert next(iter(body)) in answer.errors
    assert job.asked == []


TRIGGER_ID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


@pytest.mark.parametrize("path", ["/checkpoints", "/savepoints", "/stop"])
def test_a_request_that_is_sent_again_with_its_trigger_id_is_begun_once(
    client: Client, job: ActingJob, path: str
) -> None:
    body = {**CHANGES["POST", path], "triggerId": TRIGGER_ID}
    job.goes_on.clear()
    first = client.change("POST", f"/v1/jobs/{JOB}{path}", body)
    second = client.change("POST", f"/v1/jobs/{JOB}{path}", body)
    assert (first.status, first.json) == (second.status, second.json) == (202, {"request-id": TRIGGER_ID})
    job.goes_on.set()
    asked = f"/v1/jobs/{JOB}/triggers/{TRIGGER_ID}"
    assert "result" in ended(client, asked)
    assert client.change("POST", f"/v1/jobs/{JOB}{path}", body).json == {"request-id": TRIGGER_ID}
    assert len(job.asked) == 1
    other = client.change("POST", f"/v1/jobs/{JOB}{path}", {"triggerId": TRIGGER_ID})
    assert other.status == 409
    assert client.change("POST", f"/v1/jobs/{JOB}{path}", {"triggerId": "a/b"}).status == 400
    assert len(job.asked) == 1


def test_a_stop_that_is_sent_again_when_the_job_has_ended_is_answered(client: Client, job: ActingJob) -> None:
    stop = f"/v1/jobs/{JOB}/stop"
    client.change("POST", stop, {"triggerId": TRIGGER_ID})
    asked = f"/v1/jobs/{JOB}/triggers/{TRIGGER_ID}"
    location = ended(client, asked)["result"]["location"]
    job.current = replace(job.current, status=JobStatus.FINISHED)
    deadline = time.monotonic() + PATIENCE
    while (
        client.get(f"/v1/jobs/{JOB}") and client.change("POST", stop, {}).status != 409
    ):  # a look asks the job
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert client.change("POST", stop, {"triggerId": TRIGGER_ID}).status == 202
    assert ended(client, asked)["result"]["location"] == location


def test_savepoints_at_the_same_time_have_warnings_of_their_own(client: Client, job: ActingJob) -> None:
    job.goes_on.clear()
    asked = {}
    for place in ("/needed", "/free"):
        begun = client.change("POST", f"/v1/jobs/{JOB}/savepoints", {"target-directory": place})
        asked[place] = f"/v1/jobs/{JOB}/triggers/{begun.json['request-id']}"
    job.goes_on.set()
    said = {place: ended(client, path)["result"]["warnings"] for place, path in asked.items()}
    assert said["/free"] == []
    (warning,) = said["/needed"]
    assert "disk full" in warning


class SilentError(Exception):
    """An error whose `__str__` raises."""

    def __str__(self) -> str:
        raise self


#: Errors of no known class, and their messages.
_OTHERS: Final = (
    RuntimeError("a bug of the JobMaster"),
    RaySystemError("the connection broke"),
    OSError(28, "No space left on device"),
    DeploymentError("no JobMaster of job words-1f2e answers"),
    JobTimeoutError("no answer after 120 s; the request goes on"),
    RequestLostError("the JobMaster died meanwhile"),
    ValueError(),
    SilentError(),
    SystemExit(3),
    KeyboardInterrupt(),
)


@pytest.mark.parametrize("error", _OTHERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_request_is_done_only_if_the_job_says_so(
    client: Client, job: ActingJob, method: str, path: str, error: BaseException
) -> None:
    job.failure = error
    asked, _ = trigger(client, method, path)
    operation = ended(client, asked)
    assert operation.keys() == {"failure-cause"}
    cause = operation["failure-cause"]
    assert (cause["class"], cause["outcome"]) == (type(error).__name__, "unknown")
    own = isinstance(error, JobTimeoutError | RequestLostError)
    assert own or cause["message"].startswith("the job may or may not carry out the request: check")
    assert not error.args or not isinstance(error.args[0], str) or error.args[0] in cause["message"]


#: A value of each type; numbers are above 0, as divisors are.
_PLAIN: Final[Mapping[Any, st.SearchStrategy[Any]]] = {
    float: st.floats(1, 1e12),
    int: st.integers(1, 10**9),
    str: st.text("ab<", max_size=3),
    bool: st.booleans(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of a report."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{each.name: values(hints[each.name]) for each in fields(kind)})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and arguments[-1] is ...:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is Mapping:
        return st.dictionaries(*map(values, arguments), max_size=2)
    if origin in (Union, UnionType):
        return st.one_of(*map(values, arguments))
    return st.sampled_from(kind)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(values(JobReport))
def test_whatever_a_report_holds_has_the_described_form(report: JobReport) -> None:
    REPORT.validate(json.loads(json.dumps(report.to_dict())))
