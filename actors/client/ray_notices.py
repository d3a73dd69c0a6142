"""What Ray itself says to a program, kept out of the program's output.

A raylet tells every driver of its cluster when a worker was killed, or when many were started. Ray's thread
`ray_listen_error_messages` prints that on standard output, also with `log_to_driver=False`. There it stands
between the lines of a live display, and inside of what a command prints as JSON.

Ray has no setting for it. So the thread of a connection that Penstock makes is marked. `print_to_stdstream`,
which prints for it, hands the marked thread's notices to `take`. Connections that a user makes keep the
behaviour of Ray, and so does a Ray that names these two functions in another way.

A notice goes to the logger `penstock.ray` (INFO), and into one file for each job that this process has
submitted. `penstock logs` shows those files as lines of `ray`. A notice names no job, so several jobs of one
process get the same lines. No error of a file may reach Ray's thread: it would end, and with it all notices.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import ray
from ray._private import worker as ray_worker

from penstock.actors.shared.log_names import RAY, log_file_name
from penstock.actors.shared.output_capture import LogFile, logs_folder

#: Gets every notice as INFO.
logger = logging.getLogger("penstock.ray")

_LISTEN: Final = "listen_error_messages"
_PRINT: Final = "print_to_stdstream"
#: Jobs that a process follows at most: the newest ones.
_MOST_JOBS: Final = 16
#: Whether this thread listens for a connection that Penstock has made.
_listening: Final = threading.local()


class NoticeFiles:
    """The files of the jobs that this process has submitted; any thread may call it.

    Args:
        folder: Tells where the files belong.
    """

    def __init__(self, folder: Callable[[], Path] = logs_folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._jobs: dict[str, LogFile | None] = {}

    def follow(self, job_id: str) -> None:
        """Write notices for a job from now on; its file begins with the first one."""
        with self._lock:
            self._jobs[job_id] = None
            if len(self._jobs) > _MOST_JOBS:
                self._close(next(iter(self._jobs)))

    def leave(self, job_id: str) -> None:
        """Write no more for a job; one that is not followed is no error."""
        with self._lock:
            if job_id in self._jobs:
                self._close(job_id)

    def add(self, text: str) -> None:
        """Write a notice for every job that is followed; a job whose file fails is left."""
        with self._lock:
            for job_id, file in list(self._jobs.items()):
                try:
                    if file is None:
                        file = self._jobs[job_id] = self._open(job_id)
                    file.add("log", text.rstrip("\n") + "\n")
                except (OSError, RuntimeError) as error:
                    del self._jobs[job_id]
                    logger.warning("`penstock logs %s` gets no more notices of Ray: %s", job_id, error)

    def _close(self, job_id: str) -> None:
        file = self._jobs.pop(job_id)
        if file is not None:
            file.close()

    def _open(self, job_id: str) -> LogFile:
        node = ray.get_runtime_context().get_node_id()
        incarnation = f"{node[:8]}-{os.getpid()}"
        header = {
            "job_id": job_id,
            "vertex": RAY,
            "index": None,
            "incarnation": incarnation,
            "node_id": node,
            "pid": os.getpid(),
        }
        return LogFile(self._folder() / log_file_name(job_id, RAY, None, incarnation), header)


#: The files of this process.
NOTICES: Final = NoticeFiles()


def take(text: str, files: NoticeFiles = NOTICES) -> None:
    """Log a notice, and keep it for the jobs of this process."""
    logger.info("%s", text.rstrip("\n"))
    files.add(text)


@contextmanager
def notices_are_taken() -> Iterator[None]:
    """Take the notices of a connection that is made inside, for as long as it lasts."""
    listen: Callable[..., Any] | None = getattr(ray_worker, _LISTEN, None)
    if listen is None or not hasattr(ray_worker, _PRINT):
        yield  # a Ray that prints them in another way
        return
    _print_for_other_threads()

    def listen_marked(*args: Any) -> None:
        _listening.takes = True
        listen(*args)

    setattr(ray_worker, _LISTEN, listen_marked)
    try:
        yield
    finally:
        setattr(ray_worker, _LISTEN, listen)


def _print_for_other_threads() -> None:
    """Let Ray's printing leave out what marked threads print; again is no harm."""
    printing: Callable[..., None] = getattr(ray_worker, _PRINT)
    if hasattr(printing, "leaves_out_notices"):
        return

    def print_or_take(data: Mapping[str, Any], *args: Any, **options: Any) -> None:
        if not getattr(_listening, "takes", False):
            printing(data, *args, **options)
            return
        for line in data["lines"]:
            take(str(line))

    print_or_take.leaves_out_notices = True  # type: ignore[attr-defined]
    setattr(ray_worker, _PRINT, print_or_take)
