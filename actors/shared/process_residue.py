"""`ProcessResidue`: detects changes by users' code after which a process must not run another job.

A process that has served one job may serve the next one of the same program. It keeps its interpreter, the
loaded libraries, and the user's own modules with their globals. So a module's counter or cache continues from
job to job, as it does in the workers of Ray and Spark. At the end of a role, this class looks for changes
that must not affect a later job:

- a user's module whose file has changed since it was loaded: the next job needs the new version;
- environment variables, the working directory or `sys.path`, if they differ from those at the start;
- settings of the process, of Python and of libraries (`process_state`): umask, limits, priorities, signal
  handlers, timeouts, `gc`, locale, warnings, logging, hooks, pools and the like;
- functions and classes of Python, numpy, Arrow or Penstock that were replaced;
- threads that still run, including uploads of state;
- child processes, open files, and listening ports.

After any of these changes the process ends. Values are not reset, because other code may depend on the new
value. Only random number generators are reseeded for each role. Files are checked again before the next role
is taken, because a notebook's user may edit a module between two jobs. Some changes are not detected and
stay: settings of other libraries, memory of C libraries, connections. `JobConfig(reuse_processes=False)` is
for jobs that can't accept that.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Collection, Iterator
from typing import Final

from penstock.actors.shared.process_state import (
    INSTALLED,
    Patches,
    prepare_settings,
    read_children,
    read_loggers,
    read_open_files,
    read_settings,
    read_threads,
)

#: Threads of event loops and of fsspec, which outlive roles. Ray uses uvloop if it is installed.
_LASTING_THREADS: Final = ("asyncio_", "uvloop_", "fsspecIO")
#: Seconds within which the threads of an ended role must finish.
_THREAD_ENDS: Final = 0.2


class ProcessResidue:
    """Compares a process with its state at the start; create it before the first role is taken.

    Open files in `own_files`, the folder of Ray's session, are ignored.
    """

    def __init__(self, own_files: str | None = None) -> None:
        prepare_settings()
        self._own_files = own_files
        self._environment = _environment()
        self._folder = _working_folder()
        self._path = list(sys.path)
        self._threads = set(threading.enumerate())
        self._files: dict[str, tuple[int, int] | None] = {}
        #: Modules that were loaded before any code of users ran.
        self._modules = set(sys.modules)
        self._taken_at = _now()
        self._finders = list(sys.meta_path)
        self._settings = read_settings()
        self._loggers = read_loggers()
        self._patches = Patches()
        self._priorities = read_threads()
        self._children = read_children()
        self._open_files = set(read_open_files().values())

    def role_taken(self) -> None:
        """Assign modules loaded from now on to a new role, and seed its random numbers."""
        self._taken_at = _now()
        random.seed()
        if (numpy := sys.modules.get("numpy.random")) is not None:
            numpy.seed()

    def note_modules(self) -> None:
        """Watch the files of modules that were loaded before a role is taken; see `changed_module`.

        A file that may have been written after it was loaded counts as changed.
        """
        for file in _users_files(set(sys.modules) - self._modules):
            stamp = _stamp(file)
            is_older = stamp is not None and stamp[0] < self._taken_at * 1e9
            self._files.setdefault(file, stamp if is_older else (0, 0))

    def left(self) -> str | None:
        """Return the reason why no other job may run here, or `None`. Call it after a role's end."""
        changed = sorted({name for name, _ in _environment().items() ^ self._environment.items()})
        if changed:
            return f"environment variables have changed: {', '.join(changed)}"
        if _working_folder() != self._folder:
            return "the working directory has changed"
        if sys.path != self._path:
            return "sys.path has changed"
        return (
            self._patches.found()
            or self._setting_changed()
            or self.changed_module()
            or self._new_module_changed()
            or self._thread_left()
            or self._left_open()
        )

    def _setting_changed(self) -> str | None:
        now = read_settings()
        for name, value in self._settings.items():
            if value is not None and now[name] != value:
                return f"{name} changed"
        loggers = read_loggers()
        for name, value in self._loggers.items():
            if loggers.get(name) != value:
                return f"the configuration of the logger {name!r} has changed"
        for thread, value in read_threads().items():
            if self._priorities.get(thread, value) != value:
                return "the priority or the processors of a thread have changed"
        added = (finder for finder in sys.meta_path if finder not in self._finders)
        if any(True for finder in added if not _is_installed(type(finder).__module__)):
            return "sys.meta_path has changed"
        return None

    def _left_open(self) -> str | None:
        if children := read_children() - self._children:
            return f"its child process {min(children)} still runs"
        own = self._own_files
        for name in read_open_files().values():
            if name not in self._open_files and (own is None or not name.startswith(own + os.sep)):
                return f"{name} is still open"
        return None

    def changed_module(self) -> str | None:
        changed = next((file for file, seen in self._files.items() if _stamp(file) != seen), None)
        return None if changed is None else f"{changed} has changed"

    def _new_module_changed(self) -> str | None:
        """Watch the files of modules that this role has loaded; return the reason if one has changed.

        A file that was written after the start of the role may differ from the loaded module.
        """
        for file in _users_files(set(sys.modules) - self._modules):
            if file in self._files:
                continue
            stamp = _stamp(file)
            if stamp is None or stamp[0] >= self._taken_at * 1e9:
                return f"{file} was written while it was loaded"
            self._files[file] = stamp
        return None

    def _thread_left(self) -> str | None:
        for thread in threading.enumerate():
            if thread in self._threads or thread.name.startswith(_LASTING_THREADS):
                continue
            thread.join(_THREAD_ENDS)
            if thread.is_alive():
                return f"the thread '{thread.name}' still runs"
        return None


def _users_files(modules: Collection[str]) -> Iterator[str]:
    """Files of the modules that are neither installed nor Penstock's."""
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if not isinstance(file, str) or name.partition(".")[0] == "penstock" or file.startswith(INSTALLED):
            continue
        if not os.path.realpath(file).startswith(INSTALLED):
            yield file


def _is_installed(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return isinstance(file, str) and os.path.realpath(file).startswith(INSTALLED)


#: The original `time.time`, because a job may replace it.
_now: Final = time.time


def _environment() -> dict[str, str]:
    """The environment variables; another thread may remove some concurrently."""
    values = ((name, os.environ.get(name)) for name in list(os.environ))
    return {name: value for name, value in values if value is not None}


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _stamp(file: str) -> tuple[int, int] | None:
    """Return a file's modification time in nanoseconds, and its size; `None` if it was deleted."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
