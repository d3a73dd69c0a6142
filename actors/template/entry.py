"""The program that a node starts as a worker: it asks the template to fork a worker in its place.

It runs as a script and imports little, because it is run for each worker. The steps:

1. Connect to the template, and send the streams and settings that the worker inherits from this process.
2. The template agrees or closes the connection. While it is still importing, it does not answer.
3. Confirm. From now on only the template may make this worker, because two workers with one id must not
   exist.
4. Wait for the fork.

Without an agreement this process becomes the worker, as it would without a template.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import sys

#: Environment variables of workers: the template's socket, and the program that Ray would have started.
SOCKET = "PENSTOCK_TEMPLATESOCKET"
WORKER = "PENSTOCK_TEMPLATEWORKER"
#: glibc's limit on arenas. By default each thread may have an arena, which keeps the memory freed in it. The
#: threads of a subtask hand arrays to each other, so each arena would grow to the largest need of any thread.
ARENAS = "MALLOC_ARENA_MAX"
ONE = "1"
#: Maximum seconds to wait for the template's agreement, including the time of its imports.
_PATIENCE = 30.0
#: Message of the template (step 2), and of this process (step 3).
AGREED, YES = b"a", b"y"


def main() -> None:
    try:
        connection = _agreement()
    except Exception:  # whatever went wrong, the node still gets a worker
        connection = None
    if connection is None:
        worker = os.environ[WORKER]
        os.environ.setdefault(ARENAS, ONE)
        os.execv(sys.executable, [sys.executable, *_flags(), worker, *sys.argv[1:]])
    connection.sendall(YES)
    connection.settimeout(None)
    if not connection.recv(1):
        sys.exit("the template of this node ended before it had forked a worker")


def _agreement() -> socket.socket | None:
    """Return the connection to a template that has agreed to fork; `None` without an agreement."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_PATIENCE)
    connection.connect("\0" + os.environ[SOCKET])
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        return None  # another process has taken the address of a template that has ended
    request = json.dumps(_inherited()).encode()
    socket.send_fds(connection, [struct.pack("I", len(request))], [0, 1, 2])
    connection.sendall(request)
    return connection if connection.recv(1) == AGREED else None


def _inherited() -> dict[str, object]:
    with open("/proc/self/oom_score_adj") as file:
        out_of_memory = file.read().strip()
    return {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "flags": _flags(),
        "folder": os.getcwd(),
        "leads_group": os.getpgid(0) == os.getpid(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "out_of_memory": out_of_memory,
    }


def _flags() -> list[str]:
    return [flag for flag, is_set in (("-S", sys.flags.no_site), ("-s", sys.flags.no_user_site)) if is_set]


if __name__ == "__main__":
    main()
