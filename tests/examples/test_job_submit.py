"""Jobs inside `ray job submit`, on a running cluster that asks for a token."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from generate_text import generate_text

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.ray

#: Seconds for the cluster to come up, and for one submitted job.
_START = 90
_JOB = 150

HELPER = '''
"""A module of the user's own, beside the program."""


def shouted(line: str) -> list[str]:
    print("a line of", len(line), "characters")
    return line.upper().split()
'''

PROGRAM = """
import sys

from shouting import shouted

from penstock.runtime import Checkpointing, FileSink, FileSource, StreamEnvironment

text, output, storage = sys.argv[1:]
env = StreamEnvironment("shouting", checkpointing=Checkpointing(every=0.5, storage=storage))
env.from_source("lines", FileSource.text(text)).flat_map(shouted).sink("out", FileSink.json(output))
job = env.submit()
print("submitted", job.job_id)
"""

WAITING = """
import sys

from penstock.actors import RayJobHandle
from penstock.runtime import JobStatus

import ray

ray.init(log_to_driver=False)
print("ended as", RayJobHandle(sys.argv[1], "shouting").wait(timeout=60).status.value)
"""


@dataclass(frozen=True)
class Cluster:
    """A head node that was started with `ray start`."""

    dashboard: str
    environment: dict[str, str]

    def submit(
        self, working_dir: Path, *entrypoint: object, outside: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`ray job submit` from a folder outside of the checkout."""
        command = [
            BIN / "ray",
            "job",
            "submit",
            "--address",
            self.dashboard,
            "--working-dir",
            working_dir,
            "--",
        ]
        return subprocess.run(
            [*map(str, command), *map(str, entrypoint)],
            cwd=outside,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_JOB,
        )


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    with contextlib.ExitStack() as open_until_all_are_known:
        sockets = [open_until_all_are_known.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def answers(dashboard: str, token: str | None) -> int | None:
    """The status code that the dashboard answers with; `None` when nobody listens."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{dashboard}/api/jobs/", headers=headers)
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError:
        return None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node on loopback with ports, a folder and a token of its own; ended afterwards, and only it."""
    port, dashboard_port, client, agent_http, agent_grpc, runtime_env, metrics = free_ports(7)
    dashboard = f"http://127.0.0.1:{dashboard_port}"
    # Not in pytest's own folder: Ray's sockets have paths of at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        token_file = Path(folder) / "token"
        token_file.write_text(secrets.token_hex(32))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token_file),
            "RAY_TMPDIR": folder,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        options = {
            "--node-ip-address": "127.0.0.1",
            "--port": port,
            "--dashboard-host": "127.0.0.1",
            "--dashboard-port": dashboard_port,
            "--ray-client-server-port": client,
            "--dashboard-agent-listen-port": agent_http,
            "--dashboard-agent-grpc-port": agent_grpc,
            "--runtime-env-agent-port": runtime_env,
            "--metrics-export-port": metrics,
            "--num-cpus": 4,
        }
        words = [str(word) for option in options.items() for word in option]
        with (Path(folder) / "said").open("w+") as said:
            head = subprocess.Popen(
                [BIN / "ray", "start", "--head", "--block", "--disable-usage-stats", *words],
                env=environment,
                cwd=folder,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                deadline = time.monotonic() + _START
                while answers(dashboard, token_file.read_text()) != 200:
                    if head.poll() is not None or time.monotonic() > deadline:
                        said.seek(0)
                        pytest.fail(f"the cluster did not come up:\n{said.read()}")
                    time.sleep(0.2)
                yield Cluster(dashboard, environment)
            finally:
                end_group(head)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process with everything that it started."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def rows(output: Path) -> list[object]:
    """All committed rows."""
    return [
        json.loads(line)
        for file in output.glob("part-*")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def test_who_has_no_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    assert answers(cluster.dashboard, None) in (401, 403)
    run = cluster.submit(tmp_path, "python", "-c", "print(1)", outside=tmp_path, RAY_AUTH_MODE="disabled")
    assert run.returncode != 0
    assert "oken" in run.stdout


def test_the_word_count_survives_a_kill_when_the_checkout_is_submitted(
    cluster: Cluster, tmp_path: Path
) -> None:
    generate_text(tmp_path / "a.txt", megabytes=0.1)
    checkout = tmp_path / "checkout"
    (checkout / "examples").mkdir(parents=True)
    for example in (ROOT / "examples").glob("*.py"):
        (checkout / "examples" / example.name).write_bytes(example.read_bytes())
    places = ("--input", tmp_path / "*.txt", "--output", tmp_path / "out")
    options = ("--checkpoint-interval", 0.5, "--kill-after-checkpoints", 1, "--parallelism", 1)

    run = cluster.submit(checkout, "python", "examples/word_count.py", *places, *options, outside=tmp_path)

    assert run.returncode == 0, run.stdout
    assert "killed count[0]" in run.stdout
    assert "1 restart(s)" in run.stdout
    words = Counter((tmp_path / "a.txt").read_text(encoding="utf-8").split())
    expected = Counter((word, n) for word, total in words.items() for n in range(1, total + 1))
    assert Counter((row["word"], row["count"]) for row in rows(tmp_path / "out")) == expected  # type: ignore[index]


def test_a_job_with_a_helper_module_goes_on_without_its_driver(cluster: Cluster, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "shouting.py").write_text(HELPER)
    (project / "program.py").write_text(PROGRAM)
    (project / "waiting.py").write_text(WAITING)
    (tmp_path / "text").write_text("one two\nthree\n" * 100)

    places = (tmp_path / "text", tmp_path / "out", tmp_path / "checkpoints")
    submitted = cluster.submit(project, "python", "program.py", *places, outside=tmp_path)
    assert submitted.returncode == 0, submitted.stdout
    (job_id,) = (line.split()[-1] for line in submitted.stdout.splitlines() if line.startswith("submitted "))
    waited = cluster.submit(project, "python", "waiting.py", job_id, outside=tmp_path)

    assert waited.returncode == 0, waited.stdout
    assert "ended as finished" in waited.stdout
    assert Counter(rows(tmp_path / "out")) == Counter({"ONE": 100, "TWO": 100, "THREE": 100})
