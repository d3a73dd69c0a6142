"""The template: imports the modules that every worker needs, then forks a worker for each `entry`.

    python -m penstock.actors.template.template_process LISTENER NODE

`LISTENER`: file descriptor of the socket. `NODE`: process id of the node; the template ends with it.

The template has one Python thread and runs no user's code, so a fork copies no half-finished
operation. Libraries may have threads of their own, such as Arrow's allocator; these libraries handle forks.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import select
import signal
import socket
import struct
import sys
import types
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.actors.template.entry import AGREED, ARENAS, WORKER, YES

logger = logging.getLogger(__name__)

#: Seconds to wait for each message of an `entry`; other entries wait meanwhile.
_PATIENCE: Final = 5.0
#: Variables that may differ: those of shells and process titles, a worker's Ray job (`RAY_JOB_ID`), and the
#: limit on malloc arenas. The template has that limit anyway. At import, Ray reads a placeholder for the job;
#: a forked worker learns its job from its first call.
_OWN: Final = {"_", "OLDPWD", "PWD", "SHLVL", "SPT_NOENV", "RAY_JOB_ID", ARENAS}
_LENGTH: Final = struct.Struct("I")
_STREAMS: Final = 3


@dataclass(frozen=True, slots=True)
class Request:
    """Streams and settings that a worker inherits from its `entry`; the forked process owns the streams."""

    inherited: dict[str, Any]
    streams: list[int]


def main() -> None:
    """Import, then serve until the node ends. In a forked worker, return when the worker has ended."""
    listener, node = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    own = _comparable(dict(os.environ))
    try:
        end = os.pidfd_open(node)
    except ProcessLookupError:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Wait for the first request: until then the node is starting, and needs the processor more.
    if end in select.select([listener.fileno(), end], [], [])[0]:
        return
    import_all()
    # Forked processes share the pages of existing objects until one writes there, as the collector would.
    # These objects live as long as the process, so they stay frozen.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # workers that end leave no zombies
    request = _serve(listener, end, own)
    if request is not None:
        os.close(end)
        listener.close()
        _become_worker(request)


def import_all() -> None:
    import importlib

    worker = "ray._private.workers.default_worker"
    for name in (
        worker,
        # Ray imports these at a worker's first calls.
        "ray._common.pydantic_compat",
        "ray._common.usage.usage_lib",
        "ray._private.arrow_serialization",
        "pydantic.v1.fields",
        "pyarrow.json",
        "penstock.actors.master.job_master",
        "penstock.actors.master.master_process",
        "penstock.actors.subtask.attempt",
        "penstock.actors.subtask.subtask_actor",
    ):
        importlib.import_module(name)
    # Ray imports the first one where Ray Serve is installed. Penstock's JSON formats import the second one.
    for optional in ("starlette.datastructures", "msgspec"):
        with suppress(ImportError):
            importlib.import_module(optional)
    for public in ("", ".windows", ".aggregates", ".state", ".operators", ".connectors"):
        module = importlib.import_module(f"penstock{public}")
        for name in module.__all__:
            getattr(module, name)  # saves a third of a second at the first import of a user's module
    del sys.modules[worker]  # in a worker it is the main module


def _serve(listener: socket.socket, end: int, own: dict[str, str]) -> Request | None:
    """Fork for every request; return the request in the forked process, `None` when the node has ended."""
    while True:
        ready, _, _ = select.select([listener.fileno(), end], [], [])
        if end in ready:
            return None
        connection, _ = listener.accept()
        with connection:
            request = None
            try:
                request = _agreed(connection, own)
                if request is not None:
                    if os.fork() == 0:
                        return request
                    connection.sendall(YES)
            # The `entry` may have ended, or the system has no room for another process.
            except (OSError, ValueError, struct.error) as error:
                logger.warning("a worker is not forked, or its `entry` has ended: %s", error)
            for stream in () if request is None else request.streams:
                os.close(stream)


def _agreed(connection: socket.socket, own: dict[str, str]) -> Request | None:
    """Receive a request; return `None` when no process may be forked for it."""
    connection.settimeout(_PATIENCE)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        return None
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH.size, _STREAMS)
    try:
        inherited = json.loads(_received(connection, *_LENGTH.unpack(head)))
        if len(streams) == _STREAMS and _fits(inherited, own):
            connection.sendall(AGREED)
            if connection.recv(1) == YES:
                request = Request(inherited, streams)
                streams = []
                return request
        return None
    finally:
        for stream in streams:
            os.close(stream)


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            msg = "the connection ended before the whole request had arrived"
            raise ValueError(msg)
        data += part
    return bytes(data)


def _fits(inherited: dict[str, Any], own: dict[str, str]) -> bool:
    return not inherited["flags"] and _comparable(inherited["environment"]) == own


def _comparable(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _OWN}


def _become_worker(request: Request) -> None:
    inherited = request.inherited
    worker = os.environ[WORKER]
    _take_over(inherited, request.streams)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    sys.argv = [worker, *inherited["arguments"]]
    sys.path.insert(0, str(Path(worker).parent))
    main_module = types.ModuleType("__main__")
    main_module.__file__ = worker
    sys.modules["__main__"] = main_module
    exec(compile(Path(worker).read_bytes(), worker, "exec"), main_module.__dict__)


def _take_over(inherited: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(inherited["environment"])
    os.chdir(inherited["folder"])
    if inherited["leads_group"]:
        os.setpgid(0, 0)
    os.setpriority(os.PRIO_PROCESS, 0, inherited["niceness"])
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(inherited["files"]))
    Path("/proc/self/oom_score_adj").write_text(inherited["out_of_memory"])
    signal.pthread_sigmask(signal.SIG_SETMASK, inherited["blocked"])


if __name__ == "__main__":
    main()
