"""Joins a Ray cluster, or starts a local one that listens on loopback only; opens the page of a job.

Ray turns `_node_ip_address="127.0.0.1"` into the machine's own address, and its servers then listen on every
interface. Ray keeps 127.0.0.1, and binds each server to loopback, only if the cluster can't have several
machines. Ray has a switch for that on macOS and Windows (`RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER`). The switch is
set here while a cluster is started or joined, because Ray rewrites the loopback address even when it joins.

Token authentication stays as in Ray: on for local clusters, with the token in `~/.ray/auth_token`. Ray does
not send the token to an address that was given explicitly. Penstock sends it to clusters on this machine: to
addresses in the command lines of their processes. Any user can put any address on the command line of their
own process. So Penstock reads only the processes of this user and of root.

Ray's own notices go to the logger `penstock.ray` and to `penstock logs` (`ray_notices`), unless the user asks
for `log_to_driver`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import ray
from ray._private import ray_constants, services, worker
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

from penstock.actors.client.interrupts import InterruptsHeld
from penstock.actors.client.new_nodes import patient_with_new_nodes
from penstock.actors.client.ray_notices import notices_are_taken
from penstock.actors.template.worker_template import workers_from_template
from penstock.runtime.errors import DeploymentError

_LOOPBACK: Final = "127.0.0.1"

_CLUSTER_SWITCH: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: The program in the command line of a node's raylet.
_RAYLET: Final = "raylet"

#: Resource that Ray gives the head node.
_HEAD: Final = "node:__internal_head__"

#: The argument in a raylet's command line that names the cluster's address.
_GCS: Final = "--gcs-address="

_AUTH_LOGGER: Final = "ray._private.authentication.authentication_token_setup"
#: Seconds to wait for a connection; a busy machine may need that long.
_PROBE_TIMEOUT: Final = 20.0


def connect() -> None:
    """Make sure that this process is in a Ray cluster.

    A process that is already in a cluster stays there. Otherwise it joins the cluster of `RAY_ADDRESS`, which
    `ray job submit` sets, or the cluster that `ray start` has started on this machine. If there is neither,
    or with `RAY_ADDRESS=local`, it starts a local cluster on loopback.

    Raises:
        DeploymentError: The named or running cluster can't be joined.
    """
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    if address == "auto":
        join_existing(address)
        return
    if address and address != "local":
        _join(address, f"RAY_ADDRESS={address}", "start a cluster there, or unset RAY_ADDRESS")
        return
    started = None if address == "local" else services.find_bootstrap_address(None)
    if started is not None and _silence_of(started) is None:
        _join(started, started, "end it with `ray stop`")
    else:
        start_local()


def start_local(*, fork_workers: bool = True, **options: Any) -> None:
    """Start a local cluster that lives as long as this process and listens on loopback only.

    Args:
        fork_workers: Fork workers from a template, which is five times faster than a normal start.
            Only on Linux; workers with a runtime environment of their own are never forked.
        **options: Arguments of `ray.init`, such as `num_cpus`.
    """
    template = workers_from_template() if fork_workers else nullcontext()
    notices = notices_are_taken(not options.get("log_to_driver"))
    with _as_single_machine(), _without_authentication_notice(), patient_with_new_nodes(), template, notices:
        _init(
            address="local",
            _node_ip_address=_LOOPBACK,
            **{
                "include_dashboard": False,
                "logging_level": logging.WARNING,
                "log_to_driver": False,
                **options,
            },
        )


def is_own_cluster() -> bool:
    """Whether this process has started the cluster it is in, so that the cluster ends with this process."""
    node = worker._global_node
    return node is not None and bool(node.is_head())


def dashboard_address() -> str | None:
    """URL of the dashboard of the cluster that this process is in; `None` without one."""
    node = worker._global_node
    address = None if node is None else node.webui_url
    return f"http://{address}" if address else None


def is_on_head() -> bool:
    """Whether this process runs on the head node of its cluster."""
    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return any(node["NodeID"] == here and _HEAD in node["Resources"] for node in nodes)


def join_existing(address: str | None = None) -> None:
    """Join the cluster of `address`, else of `RAY_ADDRESS`, else the cluster that runs on this machine.

    Raises:
        DeploymentError: No cluster can be joined, or several are running and none was named.
    """
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        address = _only_cluster_here()
    _join(address, repr(address), "check `ray status`, or name another cluster with --address or RAY_ADDRESS")


def _only_cluster_here() -> str:
    started = services.find_bootstrap_address(None)
    if started is not None and _silence_of(started) is None:
        return str(started)
    here = _clusters_here()
    if not here:
        msg = (
            "no Ray cluster runs on this machine: run this on a node of the cluster, or name the cluster "
            "with --address HOST:PORT or RAY_ADDRESS. If a program started the cluster, it has ended with "
            "the program, and `penstock list --storage URL` lists its jobs"
        )
        raise DeploymentError(msg)
    if len(here) > 1:
        msg = (
            f"{len(here)} Ray clusters run on this machine ({', '.join(here)}): "
            "choose one with --address or RAY_ADDRESS"
        )
        raise DeploymentError(msg)
    return here[0]


def _clusters_here() -> list[str]:
    trusted = {psutil.Process().username(), "root"}
    found: set[str] = set()
    for process in psutil.process_iter(["username", "cmdline"]):
        line = process.info["cmdline"] or ()
        if process.info["username"] in trusted and line and _RAYLET in line[0]:
            arguments = (argument for text in line for argument in text.split(" "))
            found.update(a.removeprefix(_GCS) for a in arguments if a.startswith(_GCS))
    return sorted(found - {"", "None"})


def _join(address: str, what: str, advice: str) -> None:
    silence = None if "://" in address else _silence_of(address)
    if silence is not None:
        msg = f"no Ray cluster answers at {what} ({silence}): {advice}"
        raise DeploymentError(msg)
    if address in _clusters_here():
        with _without_authentication_notice():
            maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    try:
        with _as_single_machine(), _without_authentication_notice(), notices_are_taken():
            _init(address=address, logging_level=logging.WARNING, log_to_driver=False)
    except Exception as error:  # Ray raises many types; the text has the reason
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        msg = f"the Ray cluster at {what} can't be joined ({reason}): {advice}"
        raise DeploymentError(msg) from error


def _init(**options: Any) -> None:
    """Call `ray.init`, and hold interrupts while it makes its core worker.

    A process has one core worker. After an interrupt Ray would forget the core worker, and abort the process
    when it makes a second one.
    """
    connect_worker: Callable[..., Any] = worker.connect

    def connect_whole(*args: Any, **more: Any) -> None:
        with InterruptsHeld():
            connect_worker(*args, **more)

    worker.connect = connect_whole
    try:
        ray.init(**options)
    finally:
        worker.connect = connect_worker


def _silence_of(address: str) -> str | None:
    """Return why no server answers at an address, or `None`; Ray would try for a minute, then exit."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_TIMEOUT):
            return None
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__


@contextmanager
def _as_single_machine() -> Iterator[None]:
    """Make Ray keep loopback addresses, in this process and in the processes that Ray starts."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    in_environment = os.environ.get(_CLUSTER_SWITCH)
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[_CLUSTER_SWITCH] = "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        if in_environment is None:
            del os.environ[_CLUSTER_SWITCH]
        else:
            os.environ[_CLUSTER_SWITCH] = in_environment


@contextmanager
def _without_authentication_notice() -> Iterator[None]:
    """Drop Ray's warning that authentication is on; keep the warning that it is off."""

    def is_worth_saying(record: logging.LogRecord) -> bool:
        return "authentication is enabled" not in record.getMessage()

    ray_logger = logging.getLogger(_AUTH_LOGGER)
    ray_logger.addFilter(is_worth_saying)
    try:
        yield
    finally:
        ray_logger.removeFilter(is_worth_saying)


#: Seconds for the server's process to end after its standard input is closed.
_PATIENCE: Final = 30.0
#: The servers of this program. Each stays open even if no variable refers to it, as with `env.run(ui=True)`.
_OPEN: Final[list[UserInterface]] = []


@dataclass(frozen=True, slots=True)
class UserInterface:
    """A server of `penstock ui` that this program has started, in a process that ends with the program.

    Attributes:
        login: URL that logs a browser in, once, and opens the job's page.
        process: The server's process; ends when its standard input closes, even if this program is killed.
    """

    address: str
    login: str = field(repr=False)
    process: subprocess.Popen[str] = field(repr=False)

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self in _OPEN:
            _OPEN.remove(self)

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.login)}" target="_blank">Penstock</a> at {escape(self.address)}'


def open_interface(job_id: str, *, storage: str | None = None, open_browser: bool = True) -> UserInterface:
    """Start a server in another process, and show a job.

    Raises:
        DeploymentError: The server does not start; its stderr says why.
    """
    command = [sys.executable, "-m", "penstock.actors.command_line", "ui", "--json", "--with-parent"]
    command += ["--job", job_id, "--open" if open_browser else "--no-open"]
    if ray.is_initialized():
        command += ["--address", ray.get_runtime_context().gcs_address]
    if storage is not None:
        command += ["--storage", storage]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        msg = f"`penstock ui` has ended with code {process.wait()}; its stderr says why"
        raise DeploymentError(msg)
    printed = json.loads(line)
    opened = UserInterface(printed["address"], printed["login"], process)
    _OPEN.append(opened)
    return opened
