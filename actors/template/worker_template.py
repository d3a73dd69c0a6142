"""`workers_from_template`: a node that is started in this context forks its workers from a template.

A worker's start costs more than a second of processor time, nearly all of it for importing Ray, Arrow and
Penstock. Ray has no fork server for workers. So the node is configured to start `entry` as its worker.
`entry` asks the *template*, a process that has imported everything and waits, to fork. The forked process
does what Ray's own program for workers does, and registers under the id that the node has chosen. A node
identifies its workers by that id, not by the process that it has started.

A forked worker behaves like any other worker, for these reasons:

- The template has one Python thread, has connected to nothing, and holds no user code.
- It forks only for a worker with the same environment variables as its own, and without the interpreter's
  flags `-s` and `-S`. So Ray itself starts workers that have a runtime environment of their own.
- The worker gets the streams, folder, process group, priority and blocked signals of its `entry`. It also
  gets the limit of open files, and the out-of-memory score.
- The allocator has one arena in every worker, forked or not; see `entry`.
- Random numbers of Python and numpy are seeded anew.
- Without a template, or when the template refuses or does not answer, `entry` becomes Ray's own program.

The template ends with its node. Only Linux has the necessary system calls. Elsewhere workers start as usual.
"""

from __future__ import annotations

import inspect
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ray._private import services

from penstock.actors.shared.output_capture import own_file
from penstock.actors.template.entry import ARENAS, ONE, SOCKET, WORKER

_ENTRY: Final = Path(__file__).with_name("entry.py")
#: Variables that Ray's node sets in the environment of a worker, besides the node's process id.
_OF_WORKERS: Final = {"RAY_JOB_ID": "f" * 8, "RAY_LD_PRELOAD_ON_WORKERS": "0"}
#: Maximum number of workers that wait for a template that is still importing.
_WAITING: Final = 128

#: The templates of this program; an ended template is a zombie until it is polled.
_TEMPLATES: Final[list[subprocess.Popen[bytes]]] = []


@contextmanager
def workers_from_template() -> Iterator[None]:
    """Let the node that is started inside fork its workers; not thread-safe."""
    if sys.platform != "linux":
        yield
        return
    original = services.start_raylet
    services.start_raylet = _with_template(original)
    try:
        yield
    finally:
        services.start_raylet = original


def _with_template(start_raylet: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(start_raylet)

    def start(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        name = f"penstock-template-{secrets.token_hex(16)}"
        of_node = {
            **(given.arguments["env_updates"] or {}),
            SOCKET: name,
            WORKER: given.arguments["worker_path"],
        }
        given.arguments["env_updates"] = of_node
        given.arguments["worker_path"] = str(_ENTRY)
        with socket.socket(socket.AF_UNIX) as listener:
            # An abstract address has no file, and disappears with its last socket.
            listener.bind(f"\0{name}")
            listener.listen(_WAITING)
            info = start_raylet(*given.args, **given.kwargs)
            _start_template(listener, info.process.pid, of_node, given.arguments["log_dir"])
        return info

    return start


def _start_template(listener: socket.socket, node: int, of_node: Mapping[str, str], log_folder: str) -> None:
    _TEMPLATES[:] = [template for template in _TEMPLATES if template.poll() is None]
    command = [sys.executable, "-P", "-m", "penstock.actors.template.template_process"]
    with open(Path(log_folder, "penstock-template.err"), "ab", opener=own_file) as log:
        template = subprocess.Popen(
            [*command, str(listener.fileno()), str(node)],
            env={ARENAS: ONE, **os.environ, **of_node, **_OF_WORKERS, "RAY_RAYLET_PID": str(node)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            process_group=0,  # an interrupt from the terminal must not reach the template
        )
    _TEMPLATES.append(template)
