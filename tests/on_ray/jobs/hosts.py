"""Hosts with addresses of their own on one machine: network namespaces that a bridge joins. Needs root.

Each host has its own network. The file system is shared, as a network file system would be. A cut host loses
the network to everybody, and a job on it can still write to the shared storage. That is the worst case for a
job that must not commit twice.

Everything that is made has a name that begins with `ps` and a random part, so two test runs do not meet. It
goes at the end of the block, also when a test fails.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil
import pytest

_BIN: Final = Path(sys.executable).parent
_HERE: Final = Path(__file__).resolve().parents[1]
#: Seconds for a host to start or a command to end.
_START: Final = 120.0
#: As `docs/failures.md` names them, in the environment of `ray start`.
HEALTH_CHECKS: Final = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


def why_not() -> str | None:
    """Why hosts can't be made here; `None` if they can."""
    if os.geteuid() != 0:
        return "network namespaces with a bridge need root"
    if shutil.which("ip") is None:
        return "there is no `ip` (Debian: apt-get install iproute2)"
    probe = "psprobe" + secrets.token_hex(2)
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode != 0:
        return f"the kernel refuses network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


def has_netem() -> bool:
    """Whether the kernel can delay packets."""
    return _shaped("netem delay 1ms")


def has_tbf() -> bool:
    """Whether the kernel can limit bandwidth."""
    return _shaped("tbf rate 10mbit burst 32kbit latency 400ms")


def has_iptables() -> bool:
    """Whether packets can be dropped by chance."""
    if shutil.which("iptables") is None:
        return False
    rule = "-A INPUT -m statistic --mode random --probability 0.05 -j DROP"
    return _in_new_namespace(["iptables", *rule.split()])


def _shaped(discipline: str) -> bool:
    if shutil.which("tc") is None:
        return False
    return _in_new_namespace(["tc", "qdisc", "add", "dev", "lo", "root", *discipline.split()])


def _in_new_namespace(command: Sequence[str]) -> bool:
    tried = subprocess.run(["unshare", "--net", "--", *command], capture_output=True)
    return tried.returncode == 0


@dataclass
class Host:
    """One network namespace; its raylet is started by `ray start --block`.

    Attributes:
        interface: Its end of the cable at the bridge, in the network of this machine.
    """

    namespace: str
    interface: str
    address: str
    folder: Path
    environment: Mapping[str, str]
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: object, new_pids: bool = False) -> subprocess.Popen[bytes]:
        """Start a program on the host; what it says goes to a file in the folder.

        Args:
            command: The program and its arguments.
            new_pids: Give it process ids of its own: all of it dies with its first process.
        """
        words = ["ip", "netns", "exec", self.namespace]
        if new_pids:
            words += ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        said = self.folder / f"said-{self.namespace}-{len(self._running)}"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [*words, *map(str, command)],
                env=dict(self.environment),
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def said(self) -> str:
        """The last words of everything that was started here."""
        files = sorted(self.folder.glob(f"said-{self.namespace}-*"))
        return "\n".join(f"{file.name}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def run(self, *command: object) -> str:
        """Run a program on the host; its output.

        Raises:
            subprocess.CalledProcessError: It failed.
        """
        words = ["ip", "netns", "exec", self.namespace, *map(str, command)]
        done = subprocess.run(
            words, env=dict(self.environment), capture_output=True, text=True, timeout=_START
        )
        assert done.returncode == 0, f"{words} failed: {done.stdout} {done.stderr}"
        return done.stdout

    def cut(self) -> None:
        """Pull the cable: nothing comes or goes, and no process gets a notice."""
        _ip("link", "set", self.interface, "down")

    def heal(self) -> None:
        """Plug the cable in again."""
        _ip("link", "set", self.interface, "up")

    def pids(self) -> list[int]:
        """All processes on the host."""
        listed = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True)
        return [int(pid) for pid in listed.stdout.split()]

    def end(self) -> None:
        """Kill every process on the host, and reap those that were started from here."""
        deadline = time.monotonic() + 20
        while (left := self.pids()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._running:
                process.poll()
            time.sleep(0.1)
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


@dataclass
class Network:
    """The hosts of a cluster; the first one has the head.

    Attributes:
        folder: Short, as Ray's sockets have paths of at most 107 characters.
    """

    hosts: list[Host]
    folder: Path

    @property
    def head(self) -> Host:
        return self.hosts[0]

    @property
    def workers(self) -> list[Host]:
        return self.hosts[1:]

    @property
    def address(self) -> str:
        """The cluster's address inside the network."""
        return f"{self.head.address}:6379"

    def start_head(self, cpus: int = 0) -> subprocess.Popen[bytes]:
        """Start the head; it has process ids of its own, so another one can be started when it is gone."""
        self.clear_sockets()
        password = self.head.environment.get("RAY_REDIS_PASSWORD")
        head = self.head.start(
            *(_BIN / "ray", "start", "--head", "--block", "--port=6379", "--disable-usage-stats"),
            *([] if password is None else [f"--redis-password={password}"]),
            *(f"--node-ip-address={self.head.address}", f"--temp-dir={self.folder / 'ray'}"),
            *("--include-dashboard=false", "--object-store-memory=100000000", f"--num-cpus={cpus}"),
            new_pids=True,
        )
        self._until(self.head, head, lambda: "Ray runtime started" in self.head.said())
        return head

    def clear_sockets(self) -> None:
        """Remains of a head that was killed."""
        for left in self.folder.glob("ray/ray_current_cluster"):
            left.unlink()

    def start_worker(self, host: Host, cpus: int = 2) -> subprocess.Popen[bytes]:
        """Start a worker node."""
        already = host.said().count("Ray runtime started")
        node = host.start(
            *(_BIN / "ray", "start", "--block", f"--address={self.address}", "--disable-usage-stats"),
            *(f"--node-ip-address={host.address}", f"--num-cpus={cpus}"),
            "--object-store-memory=100000000",
            new_pids=True,
        )
        self._until(host, node, lambda: host.said().count("Ray runtime started") > already)
        return node

    def _until(self, host: Host, process: subprocess.Popen[bytes], is_up: object) -> None:
        assert callable(is_up)
        deadline = time.monotonic() + _START
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the node {host.address} did not come up:\n{host.said()}")
            time.sleep(0.2)


@contextmanager
def network(count: int = 3, **environment: str) -> Iterator[Network]:
    """Hosts that a bridge joins; gone afterwards, with everything that runs on them.

    Args:
        count: Number of hosts.
        environment: For every process on them, besides the health checks.
    """
    mark = secrets.token_hex(2)
    bridge, subnet = f"psb{mark}", f"10.{199}.{secrets.randbelow(250) + 1}"
    hosts: list[Host] = []
    folder = Path(tempfile.mkdtemp(prefix="psr-"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    settings = {
        **inherited,
        **HEALTH_CHECKS,
        # Ray asks a server outside for the version of a cloud's machine: there is none to ask.
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_raylet_start_wait_time_s": "120",
        "RAY_worker_niceness": "0",
        "RAY_REPORTER_UPDATE_INTERVAL_MS": "60000",
        "PYTHONPATH": str(_HERE),
        **environment,
    }
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for number in range(count):
            namespace, interface = f"ps{mark}{number}", f"psv{mark}{number}"
            hosts.append(Host(namespace, interface, f"{subnet}.{10 + number}", folder, settings))
            _ip("netns", "add", namespace)
            _ip("link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", interface, "master", bridge, "up")
            _ip("-n", namespace, "addr", "add", f"{hosts[-1].address}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
            # Nothing is behind it: Ray asks which address it would use for a host far away.
            _ip("-n", namespace, "route", "add", "default", "dev", "eth0")
        yield Network(hosts, folder)
    finally:
        for host in hosts:
            host.end()
            subprocess.run(["ip", "link", "del", host.interface], capture_output=True)
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def lives(pid: int) -> bool:
    """Whether a process runs; an unreaped one does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
