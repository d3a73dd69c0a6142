"""`patient_with_new_nodes`: lets a Ray node start even on a busy machine.

It works around two limits of Ray:

- `ray.init` waits 30 s for its new node to register. Here it waits longer, but not for a node that has ended.
- The node waits 15 s for each of its agents to write the port that it has chosen, and then crashes (Ray's
  issue 65983). Here the agents get free ports, and the files with the ports exist before the node starts.
  The ports are below those that Linux and macOS give to outgoing connections. So no connection takes one
  before its agent listens. Ray's default for one agent is 52365, which often belongs to another cluster. The
  agent would try for seconds to listen there.
"""

from __future__ import annotations

import inspect
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

from ray import _raylet
from ray._private import services

from penstock.runtime.errors import DeploymentError

#: Seconds for a new node to register, and between two checks.
_PATIENCE: Final = 180.0

_LOOK_AGAIN: Final = 0.5
#: Names of the agents' ports, in `services.start_raylet` and in the files with the ports.
_AGENT_PORTS: Final = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
#: Ports above those of Ray's workers, and below those of outgoing connections.
_PORTS: Final = range(20_000, 32_768)


@contextmanager
def patient_with_new_nodes() -> Iterator[None]:
    """Let a node that starts inside the block take its time; not thread-safe.

    If the node ends instead, `ray.init` raises a `DeploymentError` with the node's reason.
    """
    start: Callable[..., Any] = services.start_raylet
    look: Callable[..., Any] = services.get_node
    nodes: list[tuple[subprocess.Popen[bytes], str | None]] = []

    @wraps(start)
    def start_with_ports(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(start).bind(*args, **kwargs)
        arguments = given.arguments
        for name, free in zip(_AGENT_PORTS, _free_ports(), strict=False):
            given_port = arguments.get(name)
            arguments[name] = given_port if given_port and _is_free(given_port) else free
            _raylet.persist_port(  # type: ignore[attr-defined]
                arguments["session_dir"], arguments["node_id"], name, arguments[name]
            )
        info = start(*given.args, **given.kwargs)
        nodes.append((info.process, arguments.get("raylet_stderr_filepath")))
        return info

    def look_patiently(*args: Any) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return look(*args)
            except RuntimeError:  # the node has not registered, or the store does not answer yet
                for node, errors in nodes:
                    if node.poll() is not None:
                        raise _node_ended(node.returncode, errors) from None
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_AGAIN)

    services.start_raylet = start_with_ports
    services.get_node = look_patiently
    try:
        yield
    finally:
        services.start_raylet = start
        services.get_node = look


def _free_ports() -> Iterator[int]:
    # Not the program's own random numbers: two programs may have seeded them alike.
    return filter(_is_free, SystemRandom().sample(_PORTS, len(_PORTS)))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _node_ended(status: int, errors: str | None) -> DeploymentError:
    said = Path(errors).read_text(errors="replace").splitlines() if errors else []
    reason = f": {said[0]} (from {errors})" if said else ""
    return DeploymentError(f"the new Ray node ended with exit status {status}{reason}")
