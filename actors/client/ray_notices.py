"""Keeps Ray's own notices to a program out of the program's output.

A raylet notifies every driver of its cluster when a worker has died, or when many have been started. Ray's
thread `ray_listen_error_messages` prints these notices on standard output, even with `log_to_driver=False`.
They then break a live display, or the JSON that a command prints. Ray has no setting for that. So Penstock
marks the thread of each connection that it makes. It also wraps `print_to_stdstream`, which prints for the
thread. The wrapper hands the marked thread's notices to `take`.

A user's connection also serves other tasks. When a job is submitted over it, `take_notices_of_processes`
takes only notices of the deaths of JobMasters and of processes that run subtasks. A notice names node,
process and port; Ray's table of actors names the owner. Ray prints all other notices as before. It prints
everything with `start_local(log_to_driver=True)`, and in versions of Ray without one of the two functions
that are wrapped: `listen_error_messages` and `print_to_stdstream`.

A notice that is taken goes to the logger `penstock.ray` (INFO), and into one file for each job that this
process follows. It follows the newest 16 jobs that it has submitted, each until `wait` returns or raises the
outcome. `penstock logs` shows those files as lines of `ray`. A notice names no job, so several jobs of one
process get the same lines. An error in writing a file must not reach Ray's thread, because it would end the
thread.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ray._private import state as ray_state
from ray._private import worker as ray_worker

from penstock.actors.shared.output_capture import RAY, LogFile, logs_folder, open_log_file
from penstock.actors.shared.registry import is_process_name

#: Receives every notice that is taken, as INFO.
logger = logging.getLogger("penstock.ray")

_LISTEN: Final = "listen_error_messages"
_PRINT: Final = "print_to_stdstream"
#: Maximum number of jobs that a process follows; it follows the newest ones.
_MOST_JOBS: Final = 16
#: The name of Ray's thread.
_THREAD: Final = "ray_listen_error_messages"
_DEAD_WORKER: Final = re.compile(r"Node ID: (\w+) .*Worker port: (\d+) Worker PID: (\d+)", re.DOTALL)
#: `takes`: `True` to take all notices of this thread, `False` to take none; unset for a user's connection.
_listening: Final = threading.local()


class NoticeFiles:
    """The files of the jobs that this process follows; any thread may call it."""

    def __init__(self, folder: Callable[[], Path] = logs_folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._jobs: dict[str, LogFile | None] = {}
        self._keys: dict[str, bytes] = {}

    def follow(self, job_id: str, key: bytes = b"") -> None:
        """Start writing notices for a job; the first notice creates the job's file."""
        with self._lock:
            self._jobs[job_id] = None
            self._keys[job_id] = key
            if len(self._jobs) > _MOST_JOBS:
                self._close(next(iter(self._jobs)))

    def leave(self, job_id: str) -> None:
        """Stop writing for a job; an unknown job is not an error."""
        with self._lock:
            if job_id in self._jobs:
                self._close(job_id)

    def add(self, text: str) -> None:
        """Write a notice for every followed job; stops following a job whose file fails."""
        with self._lock:
            for job_id, file in list(self._jobs.items()):
                try:
                    if file is None:
                        key = self._keys[job_id]
                        file = self._jobs[job_id] = open_log_file(self._folder(), job_id, RAY, None, key)
                    file.add("log", text.rstrip("\n") + "\n")
                except (OSError, RuntimeError) as error:
                    del self._jobs[job_id]
                    del self._keys[job_id]
                    logger.warning("`penstock logs %s` shows no further notices of Ray: %s", job_id, error)

    def _close(self, job_id: str) -> None:
        file = self._jobs.pop(job_id)
        self._keys.pop(job_id, None)
        if file is not None:
            file.close()


#: The files of this process.
NOTICES: Final = NoticeFiles()


def take(text: str, files: NoticeFiles = NOTICES) -> None:
    logger.info("%s", text.rstrip("\n"))
    files.add(text)


@contextmanager
def notices_are_taken(taken: bool = True) -> Iterator[None]:
    """Take the notices of a connection that is made inside the block, as long as the connection lasts.

    Args:
        taken: `False` leaves all notices to Ray, even those about processes of jobs.
    """
    if not _prints_as_expected():
        yield
        return
    listen: Callable[..., Any] = getattr(ray_worker, _LISTEN)
    _hand_over_notices()

    def listen_marked(*args: Any) -> None:
        _listening.takes = taken
        listen(*args)

    setattr(ray_worker, _LISTEN, listen_marked)
    try:
        yield
    finally:
        setattr(ray_worker, _LISTEN, listen)


def take_notices_of_processes() -> None:
    if _prints_as_expected():
        _hand_over_notices()


def _prints_as_expected() -> bool:
    return hasattr(ray_worker, _LISTEN) and hasattr(ray_worker, _PRINT)


def _hand_over_notices() -> None:
    """Wrap Ray's printing so that it hands over the notices that are taken; idempotent."""
    printing: Callable[..., None] = getattr(ray_worker, _PRINT)
    if hasattr(printing, "hands_over_notices"):
        return

    def print_or_take(data: Mapping[str, Any], *args: Any, **options: Any) -> None:
        if threading.current_thread().name != _THREAD or not _is_taken(data["lines"]):
            printing(data, *args, **options)
            return
        for line in data["lines"]:
            take(str(line))

    print_or_take.hands_over_notices = True  # type: ignore[attr-defined]
    setattr(ray_worker, _PRINT, print_or_take)


def _is_taken(lines: Sequence[object]) -> bool:
    takes: bool | None = getattr(_listening, "takes", None)
    return all(_is_of_penstock(str(line)) for line in lines) if takes is None else takes


def _is_of_penstock(notice: str) -> bool:
    """Return whether a notice reports the death of a job's process; `False` if its owner is unknown."""
    found = _DEAD_WORKER.search(notice)
    if found is None:
        return False
    node, port, pid = found.groups()
    try:
        actors = list(ray_state.actors().values())
    except Exception as error:  # no error may reach Ray's thread
        logger.info("the owner of process %s is unknown: %s", pid, error)
        return False
    for actor in actors:
        name, place = str(actor["Name"]), actor["Address"]
        is_there = (str(actor["Pid"]), place["NodeID"]) == (pid, node)
        if (
            is_process_name(name) and is_there and place["Port"] in (0, int(port))
        ):  # a restarting actor has port 0
            return True
    return False
