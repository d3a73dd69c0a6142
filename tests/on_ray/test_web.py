"""`penstock ui` as a program of its own beside a running job: it shows what the command line shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
from jobs.commands import run_here
from jobs.driving import after_checkpoints, eventually, kill_master, kill_subtask, submit, when_records_flow
from jobs.talking import remainder, talking_job
from serving.client import PATIENCE, Client

from penstock import DiscardSink, JobStatus, StreamEnvironment
from penstock.actors.client import cluster
from penstock.actors.web.routes import ROUTES, description
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

TOKEN = "a token that is long enough"
FOR_EVER = 1_000_000


@pytest.fixture(scope="module")
def client(ray_cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Asks a server that has joined the cluster as any user's would."""
    token_file = tmp_path_factory.mktemp("ui") / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(TOKEN)
    command = [
        sys.executable,
        "-m",
        "penstock.actors.command_line",
        "ui",
        "--json",
        "--no-open",
        "--port",
        "0",
    ]
    command += ["--token-file", str(token_file), "--address", ray.get_runtime_context().gcs_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield Client(json.loads(server.stdout.readline())["address"], TOKEN)
        finally:
            server.terminate()
            assert server.wait(PATIENCE) == 0


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RayJobHandle]:
    running = submit(talking_job(tmp_path, FOR_EVER, 2_000.0))
    when_records_flow(running, "out", 1_000)
    after_checkpoints(running, 1)
    yield running
    running.cancel()


def printed(*words: str) -> Any:
    """The JSON of a command."""
    done = run_here(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_it_shows_what_the_command_line_shows(client: Client, job: RayJobHandle) -> None:
    path = f"/v1/jobs/{job.job_id}"
    seen, said = client.look(path), printed("status", job.job_id)
    assert (seen["live"], seen["answering"]) == (True, True)
    described = description()
    jsonschema.validate(
        seen, {"$ref": "#/components/schemas/JobAnswer", "components": described["components"]}
    )
    assert seen["report"].keys() == said.keys()
    for name in ("job_id", "name", "status", "graph", "storage", "settings", "master", "failures"):
        assert seen["report"][name] == said[name], name
    assert job.job_id in [each["job_id"] for each in client.look("/v1/jobs/overview")["jobs"] if each["live"]]
    known = {each["checkpoint_id"] for each in client.look(f"{path}/checkpoints")["history"]}
    assert known & {each["checkpoint_id"] for each in printed("checkpoints", job.job_id)}

    (newest,) = {client.look(f"{path}/checkpoints")["latest"]["completed"]["checkpoint_id"]}
    details = client.look(f"{path}/checkpoints/details/{newest}")
    assert {row["vertex"] for row in details["by_subtask"]} == {"numbers", "largest"}
    state = client.look(f"{path}/state")
    assert {each["operator_id"] for each in state["operators"]} >= {"numbers", "largest"}
    value = client.look(f"{path}/state/largest/reduce?key=3")
    assert value["found"]
    assert remainder(int(value["entries"][0]["value"])) == 3
    lines = client.look(f"{path}/log?operator=talk&text=")["lines"]
    assert {line["vertex"] for line in lines} == {"numbers"}


def test_events_carry_reports_and_samples_while_the_job_runs(client: Client, job: RayJobHandle) -> None:
    sampled = reported = 0
    for name, data in client.events(f"/v1/jobs/{job.job_id}/events"):
        if name == "report":
            assert data["report"]["job_id"] == job.job_id
            reported += 1
        elif name == "sample" and data["records_in"] is not None:
            assert data["records_in"] > 0
            sampled += 1
        if sampled and reported > 1:
            break
    assert client.look(f"/v1/jobs/{job.job_id}/samples")["samples"]


def test_a_checkpoint_a_savepoint_a_rescale_and_a_stop_by_rest(
    client: Client, job: RayJobHandle, tmp_path: Path
) -> None:
    taken = client.carry_out(job.job_id, "POST", "/checkpoints")["result"]
    assert taken["checkpoint_id"] >= 1
    assert Path(taken["path"].removeprefix("file://")).exists()

    saved = client.carry_out(
        job.job_id, "POST", "/savepoints", {"target-directory": str(tmp_path / "saved")}
    )["result"]
    assert printed("inspect", saved["location"])["kind"] == "savepoint"

    preview = client.look(f"/v1/jobs/{job.job_id}/rescale-preview?parallelism=%7B%22largest%22%3A3%7D")
    assert preview["vertices"][0]["bytes_moved"] > 0
    wanted = {"parallelism": {"largest": 3}}
    assert (
        client.carry_out(job.job_id, "PUT", "/resource-requirements", wanted)["result"]["parallelism"]
        == wanted["parallelism"]
    )
    vertices = {
        each["id"]: each["parallelism"] for each in printed("status", job.job_id)["graph"]["vertices"]
    }
    assert vertices["largest"] == 3
    refused = client.carry_out(job.job_id, "PUT", "/resource-requirements", {"parallelism": {"largest": 999}})
    assert refused["failure-cause"]["class"] == "RescaleError"

    stopped = client.carry_out(job.job_id, "POST", "/stop", {"drain": False})["result"]
    assert printed("inspect", stopped["location"])["kind"] == "sync_savepoint"
    assert job.status() is JobStatus.FINISHED
    assert client.look(f"/v1/jobs/{job.job_id}")["report"]["savepoint"] == stopped["location"]


def test_a_killed_subtask_and_a_killed_job_master_are_seen(client: Client, job: RayJobHandle) -> None:
    path = f"/v1/jobs/{job.job_id}"
    kill_subtask(job, "largest", 1)
    eventually("its failure is shown", lambda: bool(client.look(f"{path}/exceptions")["history"]))
    assert client.look(f"{path}/exceptions")["history"][0]["root"]["kind"] == "process"
    kill_master(job)
    eventually(
        "the next JobMaster answers",
        lambda: any(each["kind"] == "takeover" for each in client.look(path)["report"]["history"]),
    )


def test_a_flame_graph_names_the_functions_of_a_subtask_or_what_forbids_it(
    client: Client, job: RayJobHandle
) -> None:
    answer = client.get(f"/v1/jobs/{job.job_id}/vertices/largest/flamegraph?subtask=0&seconds=1")
    if answer.status == 200:
        assert answer.json["root"]["value"] > 0
        assert b".py" in answer.body
    else:
        assert answer.status == 409
        assert "ptrace" in answer.errors


def test_records_of_an_edge_are_those_that_flow_now_and_no_report_has_them(
    client: Client, job: RayJobHandle
) -> None:
    edges = [(edge.source, edge.target) for edge in job.report().graph.edges]
    place = edges.index(("talk", "largest")) if ("talk", "largest") in edges else len(edges) - 1
    seen = client.look(f"/v1/jobs/{job.job_id}/edges/{place}/records")
    schema = description()
    form = {"$ref": "#/components/schemas/EdgeRecordsAnswer", "components": schema["components"]}
    jsonschema.validate(seen, form)
    assert (seen["source"], seen["target"]) == edges[place]
    assert len(seen["records"]) == 10
    assert all(record["text"].isdecimal() for record in seen["records"])
    assert {record["subtask"] for record in seen["records"]} == {0, 1}
    assert client.get(f"/v1/jobs/{job.job_id}/edges/{len(edges)}/records").status == 404
    assert "'text'" not in str(job.report().to_dict()["subtasks"])
    assert len(job.sample_edge(place, most=3)) == 3


def snippets(document: str) -> list[str]:
    text = (Path(__file__).resolve().parents[2] / "docs" / document).read_text(encoding="utf-8")
    return re.findall(r"<!-- runs in a test -->\n```bash\n(.*?)```", text, re.DOTALL)


*WATCHING, LOOKING, FLAMES, LISTENING, CHANGING, CANCELLING = snippets("web.md")


def carried_out(client: Client, job: RayJobHandle, snippet: str) -> subprocess.CompletedProcess[str]:
    places = {"UI": client.address.rstrip("/"), "TOKEN": TOKEN, "JOB": job.job_id}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", snippet],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def printed_by(client: Client, job: RayJobHandle, snippet: str) -> str:
    done = carried_out(client, job, snippet)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_path_has_a_command_in_the_documents() -> None:
    said = "\n".join(snippets("web.md")).replace("\\\n", " ")
    for route in ROUTES:
        path = re.escape("$UI") + re.sub(r"{[a-z]+}", r"[^/?\"{}]+", route.path) + r"[?\"]"
        method = "" if route.method == "GET" else f"-X {route.method} "
        assert re.search(rf'{method}"{path}', said), f"{route.method} {route.path}"


def test_the_commands_in_the_documents_do_what_they_say(client: Client, job: RayJobHandle) -> None:
    watched = [printed_by(client, job, snippet) for snippet in WATCHING]
    assert "COMPLETED" in watched[-1]
    answers = [json.loads(line) for line in printed_by(client, job, LOOKING).splitlines()]
    assert len(answers) == 22
    assert {"entries", "found"} <= answers[-2].keys()
    assert answers[-1]["vertices"][0]["to"] == 3
    flames = carried_out(client, job, FLAMES)
    assert json.loads(flames.stdout).get("root") or "ptrace" in flames.stdout
    events = re.findall(r"^event: (\w+)$", printed_by(client, job, LISTENING), re.MULTILINE)
    assert {"overview", "report"} <= set(events)
    ended = printed_by(client, job, CHANGING)
    assert "failure-cause" not in ended
    assert ended.count("COMPLETED") == 4
    assert job.status() is JobStatus.FINISHED


@pytest.mark.long
def test_a_job_is_cancelled_by_a_command_in_the_documents(client: Client, job: RayJobHandle) -> None:
    assert "request-id" in printed_by(client, job, CANCELLING)
    eventually("it has ended", lambda: job.status() is JobStatus.CANCELLED)

    def state() -> str:
        overview = {each["job_id"]: each for each in client.look("/v1/jobs/overview")["jobs"]}
        return str(overview[job.job_id]["status"])

    eventually("the list of jobs says so", lambda: state() == "cancelled")


@pytest.mark.long
def test_more_checkpoints_than_a_report_has_are_shown(client: Client, job: RayJobHandle) -> None:
    """The server asks the JobMaster once; what comes later joins that."""
    path = f"/v1/jobs/{job.job_id}/checkpoints"
    while len(job.checkpoints()) <= 25:
        job.checkpoint()
    first = client.look(path)
    ids = [each["checkpoint_id"] for each in first["history"]]
    assert len(ids) > 25
    assert ids == list(range(ids[0], 0, -1))
    assert len(client.look(f"/v1/jobs/{job.job_id}")["report"]["checkpoint_history"]) == 20
    assert first["summarized"] == sum(each["status"] == "completed" for each in first["history"])
    job.checkpoint()

    def newest() -> int:
        return int(client.look(path)["latest"]["completed"]["id"])

    eventually("a new one is shown", lambda: newest() > ids[0])
    assert len(client.look(path)["history"]) > len(ids)
    assert len(client.look(f"{path}/details/{newest()}")["by_subtask"]) == 4


@pytest.mark.long
def test_a_handle_opens_a_server_that_ends_with_its_program(job: RayJobHandle) -> None:
    opened = job.ui(open_browser=False)
    try:
        assert opened.login.startswith(f"{opened.address}#token=")
        assert opened.login.endswith(f"&job={job.job_id}")
        assert Client(opened.address).get("/").status == 200
        assert job.ui() is opened
    finally:
        opened.close()
    assert opened.process.returncode == 0


def test_a_run_shows_its_page_and_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true")  # the program of that name opens nothing
    env = StreamEnvironment("shown")
    env.from_collection("numbers", [1, 2, 3]).sink("out", DiscardSink())
    result = env.run(ui=True, progress=False)
    (opened,) = cluster._OPEN
    try:
        assert f"job={result.job_id}" in opened.login
        assert Client(opened.address).get("/").status == 200
    finally:
        opened.close()
    assert cluster._OPEN == []
