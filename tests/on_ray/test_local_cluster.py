"""A local cluster keeps to itself: it listens on loopback only, and asks for a token."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

PROGRAM = """
import contextlib, os, sys
import ray
import psutil
from penstock.actors.client.collect import RayCollector
from penstock import CollectSink, StreamEnvironment

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
print("ready", flush=True)
sys.stdin.readline()
"""

BROKEN = """
from penstock import Checkpointing, DiscardSink, StreamEnvironment

env = StreamEnvironment("broken", checkpointing=Checkpointing(every=60, storage="kept ones"))
env.from_collection("in", [0]).map(lambda n: 1 // n).sink("out", DiscardSink())
env.run(progress=False)
"""

JOIN = """
import ray
from penstock.actors.client.cluster import join_existing
join_existing()
print("joined", len(ray.nodes()))
"""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """An environment without anything of Ray's, as in a fresh shell, but for patience with a busy machine."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return mine | {"RAY_raylet_start_wait_time_s": "120"}


def test_a_local_cluster_listens_on_loopback_only_and_is_joined_with_its_token(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    lines = []
    for line in program.stdout:
        lines.append(line.rstrip("\n"))
        if line == "ready\n":
            break
    if lines[-1:] != ["ready"]:
        program.kill()
        pytest.fail(program.communicate()[1])
    try:
        said = dict(line.split(" ", 1) for line in lines if not line.startswith(("listens", "ready")))
        assert said["rows"] == "['1', '2', '3']"
        assert said["auth"] == "token"
        listening = {line.split(" ", 2)[1] for line in lines if line.startswith("listens")}
        assert listening, "nothing listens: the test looks in the wrong place"
        assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        assert not answers_elsewhere(int(said["gcs"].rpartition(":")[2]))

        joined = join(said["gcs"], tmp_path, environment)
        assert (joined.returncode, joined.stdout) == (0, "joined 1\n"), joined.stderr
        assert answer_without_token(said["gcs"]) is grpc.StatusCode.UNAUTHENTICATED
    finally:
        _, errors = program.communicate("end\n", timeout=300)
    assert program.returncode == 0
    assert not re.search("(?i)warning|authentication", errors), "a quiet start"


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


def test_the_error_of_a_local_job_names_a_command_that_works_after_the_program(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)

    (tmp_path / "broken.py").write_text(BROKEN)
    done = run("broken.py")
    found = re.search(r"`penstock (status .*)` says more", done.stderr)
    assert found is not None, done.stderr
    shown = run("-m", "penstock.actors.command_line", *shlex.split(found[1]))

    assert "ZeroDivisionError" in shown.stdout, shown.stderr
