"""A local cluster keeps to itself: it listens on loopback only, and asks for a token.

One program shows all of this, because a cluster starts for seconds. At its end it is interrupted.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

PROGRAM = """
import contextlib, os, sys
import ray
import psutil
from penstock.actors.client.collect import RayCollector
from penstock import Checkpointing, CollectSink, DiscardSink, GeneratorSource, StreamEnvironment
from penstock import JobFailedError

results = RayCollector()
env = StreamEnvironment("local")
env.from_collection("in", [1, 2, 3]).map(str).sink("out", CollectSink(results))
env.run(progress=False)
print("rows", results.rows())
print("gcs", ray.get_runtime_context().gcs_address)
print("auth", os.environ.get("RAY_AUTH_MODE"))
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
for process in processes:
    with contextlib.suppress(psutil.NoSuchProcess):  # those of the job that has ended are ending
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                print("listens", connection.laddr.ip, process.name())

env = StreamEnvironment("broken", checkpointing=Checkpointing(every=60, storage="kept ones"))
env.from_collection("in", [0]).map(lambda n: 1 // n).sink("out", DiscardSink())
try:
    env.run(progress=False)
except JobFailedError as error:
    print("failed", *str(error).splitlines())

env = StreamEnvironment("endless", checkpointing=Checkpointing(every=0.2, storage="kept"))
env.from_source("in", GeneratorSource(lambda i: i, rate=100.0)).sink("out", DiscardSink())

def tell(report):
    global is_told
    if report.statistics.completed_checkpoints and not is_told:
        is_told = True
        print("ready", flush=True)

is_told = False
env.submit().wait(on_progress=tell)
"""

JOIN = """
import ray
from penstock.actors.client.cluster import join_existing
join_existing()
print("joined", len(ray.nodes()))
"""


@dataclass(frozen=True)
class Local:
    """A program with a local cluster that was interrupted while its last job ran.

    Attributes:
        said: Lines of its standard output by their first word.
        errors: Its standard error.
        joined: The output of a program that joined the cluster.
        without_token: The cluster's answer to a call without a token.
    """

    folder: Path
    said: dict[str, list[str]]
    errors: str
    code: int
    joined: subprocess.CompletedProcess[str]
    without_token: grpc.StatusCode
    is_open_elsewhere: bool


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """An environment without anything of Ray's, as in a fresh shell, but for patience with a busy machine."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return mine | {"RAY_raylet_start_wait_time_s": "120"}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Local:
    folder = tmp_path_factory.mktemp("local")
    (folder / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, "program.py"],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    said: dict[str, list[str]] = {}
    for line in program.stdout:
        name, _, text = line.rstrip("\n").partition(" ")
        said.setdefault(name, []).append(text)
        if name == "ready":
            break
    if "ready" not in said:
        program.kill()
        pytest.fail(program.communicate()[1])
    try:
        (gcs,) = said["gcs"]
        joined = join(gcs, folder, environment)
        without_token = answer_without_token(gcs)
        is_open_elsewhere = answers_elsewhere(int(gcs.rpartition(":")[2]))
    finally:
        os.killpg(program.pid, signal.SIGINT)  # as a shell does
        _, errors = program.communicate(timeout=300)
    return Local(folder, said, errors, program.returncode, joined, without_token, is_open_elsewhere)


def test_a_local_cluster_listens_on_loopback_only_and_is_joined_with_its_token(local: Local) -> None:
    assert local.said["rows"] == ["['1', '2', '3']"]
    assert local.said["auth"] == ["token"]
    listening = {line.partition(" ")[0] for line in local.said["listens"]}
    assert listening, "nothing listens: the test looks in the wrong place"
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert not local.is_open_elsewhere
    assert (local.joined.returncode, local.joined.stdout) == (0, "joined 1\n"), local.joined.stderr
    assert local.without_token is grpc.StatusCode.UNAUTHENTICATED
    assert not re.search("(?i)warning|authentication", local.errors), "a quiet start"


def test_the_error_of_a_local_job_names_a_command_that_works_after_the_program(
    local: Local, environment: dict[str, str]
) -> None:
    (message,) = local.said["failed"]
    found = re.search(r"`penstock (status .*)` says more", message)
    assert found is not None, message
    command = [sys.executable, "-m", "penstock.actors.command_line", *shlex.split(found[1])]
    shown = subprocess.run(command, env=environment, cwd=local.folder, capture_output=True, text=True)

    assert "ZeroDivisionError" in shown.stdout, shown.stderr


def test_ctrl_c_on_a_local_job_is_one_line_with_the_command_that_continues(local: Local) -> None:
    """`test_interrupts.py` carries the command out, if long."""
    assert local.code == 128 + signal.SIGINT
    (job,) = (path for path in (local.folder / "kept").iterdir() if path.is_dir())
    restore = f"penstock restore {job} {sys.executable} program.py"
    assert "Traceback" not in local.errors
    line = local.errors.splitlines()[-1]
    ends = rf"job {job.name} ends with this program; checkpoint \d+ is saved. To continue: "
    assert re.fullmatch(ends + re.escape(restore), line)


def join(address: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JOIN],
        env={**environment, "RAY_ADDRESS": address},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def answer_without_token(address: str) -> grpc.StatusCode:
    """The cluster's answer to a call without a token."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetAllNodeInfo")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=300)
    code = refused.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


def answers_elsewhere(port: int) -> bool:
    """Whether the port is open on an address of this machine that others reach."""
    for *_, (host, *_) in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
        if not host.startswith("127."):
            try:
                socket.create_connection((host, port), 1.0).close()
            except OSError:
                continue
            return True
    return False
