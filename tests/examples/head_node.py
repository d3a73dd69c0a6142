"""Nodes of Ray as `ray start` makes them, for tests that submit to them; on loopback, and asking for a token.

They have ports, a folder and a token of their own, so they do not meet other clusters of this machine.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import pytest

BIN = Path(sys.executable).parent

#: Seconds for a node to start, and for one submitted job.
_START = 240
_JOB = 280
#: Ports of every node that would otherwise be the same for all of a machine.
_PORTS = (
    "dashboard_agent_listen_port",
    "dashboard_agent_grpc_port",
    "runtime_env_agent_port",
    "metrics_export_port",
)

#: `ray start` gives up on a node after 30 s, which is too early on a busy machine.
_HEAD = """
from penstock.actors.client.new_nodes import patient_with_new_nodes
from ray.scripts.scripts import main

with patient_with_new_nodes():
    main()
"""
_IS_UP = "the node is up"
#: What `ray start --address` does. That itself refuses to join a cluster that is on loopback only.
_SECOND = f"""
import json
import signal
import sys

from penstock.actors.client.new_nodes import patient_with_new_nodes
from ray._private.node import Node
from ray._private.parameter import RayParams

address, resources, ports = sys.argv[1:]
options = dict(num_cpus=1, resources=json.loads(resources), object_store_memory=150 * 1024 * 1024)
free = dict(node_manager_port=0, min_worker_port=0, max_worker_port=0, **json.loads(ports))
where = dict(gcs_address=address, redis_address=address, node_ip_address="127.0.0.1")
params = RayParams(include_log_monitor=False, **where, **options, **free)
with patient_with_new_nodes():
    node = Node(params, head=False, shutdown_at_exit=True)
print("{_IS_UP}", flush=True)
signal.pause()
"""


@dataclass(frozen=True)
class Cluster:
    """A head node that was started with `ray start`."""

    dashboard: str
    address: str
    environment: dict[str, str]

    def submit(
        self, working_dir: Path | None, *entrypoint: object, outside: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`ray job submit` from a folder outside of the checkout."""
        command = [BIN / "ray", "job", "submit", "--address", self.dashboard]
        where = [] if working_dir is None else ["--working-dir", working_dir]
        return subprocess.run(
            [*map(str, [*command, *where, "--", *entrypoint])],
            cwd=outside,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_JOB,
        )


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on right now."""
    with contextlib.ExitStack() as open_until_all_are_known:
        sockets = [open_until_all_are_known.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def listens(port: int) -> bool:
    """Whether a process listens on a port of loopback."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def answers(dashboard: str, token: str | None) -> int | None:
    """The status code that the dashboard answers with; `None` when no process listens."""
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


@contextmanager
def head_node(options: Mapping[str, str] = MappingProxyType({}), /, **more: str) -> Iterator[Cluster]:
    """A head node; it is ended afterwards, and only it.

    `options` are those of `ray start`, beside the ones that keep it apart from others. `more` goes into its
    environment, which is this process's without Ray's settings.
    """
    port, dashboard_port, client, *others = free_ports(3 + len(_PORTS))
    dashboard = f"http://127.0.0.1:{dashboard_port}"
    # Not in pytest's own folder: Ray's sockets have paths of at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        token_file = Path(folder) / "token"
        token_file.write_text(more.get("RAY_AUTH_TOKEN") or secrets.token_hex(32))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token_file),
            "RAY_TMPDIR": folder,
            "RAY_raylet_start_wait_time_s": "120",  # see tests/conftest.py for these four
            "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "1",
            "RAY_worker_niceness": "0",
            "RAY_REPORTER_UPDATE_INTERVAL_MS": "60000",
            # A node that is to end waits half a minute for work that it could finish: here there is none.
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            # Only so Ray takes 127.0.0.1 at its word: see `penstock.actors.client.cluster`.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            **more,
            "PATH": f"{BIN}{os.pathsep}{more.get('PATH', os.environ['PATH'])}",
        }
        words_of = {
            "--num-cpus": 4,
            **{f"--{name}": value for name, value in options.items()},
            "--node-ip-address": "127.0.0.1",
            "--port": port,
            "--dashboard-host": "127.0.0.1",
            "--dashboard-port": dashboard_port,
            "--ray-client-server-port": client,
            **{f"--{name.replace('_', '-')}": number for name, number in zip(_PORTS, others, strict=True)},
        }
        # What asks a cloud for nodes, and shows logs in a driver.
        flags = ["--no-monitor", "--include-log-monitor=False"]
        words = [*flags, *(str(word) for option in words_of.items() for word in option)]

        def is_up(said: str) -> bool:
            # The agent starts what is submitted. It comes up last, on a busy machine much later.
            return answers(dashboard, token_file.read_text()) == 200 and listens(others[0])

        command = [sys.executable, "-c", _HEAD, "start", "--head", "--block", "--disable-usage-stats", *words]
        with _node(command, environment, is_up):
            yield Cluster(dashboard, f"127.0.0.1:{port}", environment)


@contextmanager
def second_node(cluster: Cluster, resource: str) -> Iterator[None]:
    """Another node of a cluster, on this machine and on loopback, too; it alone has one of a resource."""
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    ports["metrics_agent_port"] = ports.pop("dashboard_agent_grpc_port")
    command = [sys.executable, "-c", _SECOND, cluster.address, json.dumps({resource: 1}), json.dumps(ports)]
    with _node(command, cluster.environment, lambda said: _IS_UP in said):
        yield


@contextmanager
def _node(
    command: Sequence[str | Path], environment: dict[str, str], is_up: Callable[[str], bool]
) -> Iterator[None]:
    """A node that lives as long as this block; `is_up` is asked with what it has said."""
    with tempfile.TemporaryFile("w+") as said:
        node = subprocess.Popen(
            command,
            env=environment,
            cwd=environment["RAY_TMPDIR"],
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + _START
            while not is_up(text_of(said)):
                if node.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the node did not come up:\n{text_of(said)}")
                time.sleep(0.2)
            yield
        finally:
            end_group(node)


def text_of(file: IO[str]) -> str:
    """All that another process has written into it so far."""
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


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
