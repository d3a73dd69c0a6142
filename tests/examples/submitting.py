"""A Ray cluster that asks for a token, and `ray job submit` to it."""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent

#: Seconds for the cluster to come up, and for one submitted job.
_START = 90
_JOB = 280


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


@contextlib.contextmanager
def head_with_token(num_cpus: int, **more: str) -> Iterator[Cluster]:
    """A head node on loopback with ports, a folder and a token of its own; ended afterwards, and only it.

    `more` is its environment, beside this process's without Ray's settings.
    """
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
            "PATH": os.environ["PATH"],
            **more,
        }
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
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
            "--num-cpus": num_cpus,
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
