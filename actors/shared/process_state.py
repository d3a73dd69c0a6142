"""The state of a process beyond its modules, as values that can be compared: `read_settings` and `Patches`.

A job may change any of these values, on purpose or through a library. A later job in the same process would
see the change. Resetting a value is safe only if no code depends on the new value, which can't be known. So
`ProcessResidue` only compares. If something differs, the process ends.

The umask, signals, threads, children and open files are read from `/proc`, where it exists. On Linux each
thread has its own priority, so `read_threads` reads all of them.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import decimal
import faulthandler
import gc
import locale
import logging
import os
import resource
import signal
import socket
import stat
import sys
import sysconfig
import tempfile
import threading
import time
import tracemalloc
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ray.util.annotations import RayDeprecationWarning

#: Folders of modules that users do not edit between two jobs.
INSTALLED: Final = tuple(
    folder + os.sep
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
    for folder in (path, os.path.realpath(path))
)
#: Packages of the standard library, except `distutils`, which setuptools replaces.
_STANDARD: Final = sys.stdlib_module_names - {"__main__", "distutils"}
_PROC: Final = Path("/proc/self")
#: Fields of `/proc/self/status` that a job can change.
_OF_STATUS: Final = frozenset({"Umask", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp"})
#: Types of a class's attributes that are code. All other attributes are data, which may change.
_CODE: Final = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    classmethod,
    staticmethod,
    property,
    type,
)
#: Packages besides the standard library whose functions and classes are watched.
_WATCHED: Final = frozenset({"numpy", "pyarrow", "penstock"})


def read_settings() -> dict[str, object]:
    """The settings of this process by name; values compare equal until a setting changes.

    `None` stands for a library that is not loaded yet.
    """
    return {name: read() for name, read in _SETTINGS.items()}


def prepare_settings() -> None:
    """Run the first-use setup of libraries now, so that it does not count as a job's change."""
    _exits.watch()
    tempfile.gettempdir()
    asyncio.get_event_loop_policy()


class _Exits:
    """Counts functions that users' code registers with `atexit`, but not those that libraries register."""

    def __init__(self) -> None:
        self.of_users = 0
        self._register = atexit.register

    def watch(self) -> None:
        atexit.register = self.register

    def register(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        caller = sys._getframe(1)
        home = caller.f_globals.get("__name__", "").partition(".")[0]
        if home not in _STANDARD | {"penstock"} and not caller.f_code.co_filename.startswith(INSTALLED):
            self.of_users += 1
        return self._register(function, *args, **kwargs)


_exits: Final = _Exits()


def _status() -> dict[str, str]:
    try:
        text = (_PROC / "status").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs if name in _OF_STATUS}


def _umask() -> object:
    found = _status().get("Umask")
    if found is None:  # without /proc, reading the umask requires setting it
        os.umask(mask := os.umask(0o077))
        return mask
    return found


def _identity() -> object:
    return os.getresuid(), os.getresgid(), sorted(os.getgroups())


def _restrictions() -> object:
    status = _status()
    return status.get("NoNewPrivs"), status.get("Seccomp")


def _limits() -> object:
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return [(name, resource.getrlimit(getattr(resource, name))) for name in names]


def _signals() -> object:
    python = {number: signal.getsignal(number) for number in signal.valid_signals()}
    status = _status()
    timers = [signal.getitimer(timer)[1] for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)]
    alarm = signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return python, status.get("SigIgn"), status.get("SigCgt"), timers, alarm, blocked


def _collector() -> object:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), list(gc.callbacks)


def _warnings() -> object:
    """Warning filters, except the one for `RayDeprecationWarning`, which each job sets."""
    return [entry for entry in warnings.filters if entry[2] is not RayDeprecationWarning]


def _logging() -> object:
    root = logging.getLogger()
    # Penstock's handlers don't count: those of a JobMaster are still installed.
    handlers = [handler for handler in root.handlers if not type(handler).__module__.startswith("penstock.")]
    return (
        (root.level, handlers, list(root.filters), root.manager.disable),
        (logging.getLoggerClass(), logging.getLogRecordFactory(), logging.raiseExceptions),
        logging.lastResort,
    )


def read_loggers() -> dict[str, object]:
    """Settings of each logger by name, except Ray's loggers, which Ray changes while it works."""
    known = list(logging.getLogger().manager.loggerDict.items())
    return {
        name: (log.level, list(log.handlers), list(log.filters), log.propagate, log.disabled)
        for name, log in known
        if isinstance(log, logging.Logger) and name.partition(".")[0] != "ray"
    }


def _decimal() -> object:
    contexts = decimal.getcontext(), decimal.DefaultContext
    return [(repr(context), dict(context.traps)) for context in contexts]


def _hooks() -> object:
    return (
        (sys.excepthook, sys.unraisablehook, sys.displayhook, sys.breakpointhook, threading.excepthook),
        (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        (faulthandler.is_enabled(), tracemalloc.is_tracing(), list(sys.path_hooks)),
    )


def _numpy() -> object:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    return numpy.geterr(), numpy.geterrcall(), repr(numpy.get_printoptions())


def _arrow() -> object:
    arrow = sys.modules.get("pyarrow")
    if arrow is None:
        return None
    return arrow.cpu_count(), arrow.io_thread_count(), arrow.default_memory_pool().backend_name


def _start_method() -> object:
    context: Any = sys.modules.get("multiprocessing.context")
    return None if context is None else getattr(context._default_context, "_actual_context", None)


def _out_of_memory() -> object:
    try:
        return (_PROC / "oom_score_adj").read_text()
    except OSError:
        return None


_SETTINGS: Final[Mapping[str, Callable[[], object]]] = {
    "the umask has": _umask,
    "the user or its groups have": _identity,
    "limits (setrlimit) have": _limits,
    "restrictions of system calls (prctl) have": _restrictions,
    "the default timeout of sockets has": lambda: repr(socket.getdefaulttimeout()),
    "the switch interval has": sys.getswitchinterval,
    "the recursion limit has": sys.getrecursionlimit,
    "the limit of digits of integers has": getattr(sys, "get_int_max_str_digits", lambda: None),
    "settings of gc have": _collector,
    "the locale has": lambda: locale.setlocale(locale.LC_ALL),
    "the time zone has": lambda: (time.tzname, time.timezone),
    "the decimal context has": _decimal,
    "warnings filters have": _warnings,
    "signal handlers have": _signals,
    "the configuration of logging has": _logging,
    "functions of atexit have": lambda: _exits.of_users,
    "hooks of sys or threading have": _hooks,
    "the policy of asyncio has": asyncio.get_event_loop_policy,
    "the temporary folder has": lambda: str(tempfile.tempdir),
    "the start method of multiprocessing has": _start_method,
    "settings of numpy have": _numpy,
    "pools of pyarrow have": _arrow,
    "the out-of-memory score has": _out_of_memory,
}


def read_threads() -> dict[int, object]:
    """Priority and processors of each thread of this process, by native thread id."""
    try:
        numbers = [int(name) for name in os.listdir(_PROC / "task")]
    except OSError:
        return {0: os.getpriority(os.PRIO_PROCESS, 0)}
    found: dict[int, object] = {}
    for number in numbers:
        with suppress(ProcessLookupError):  # it has just ended
            found[number] = os.getpriority(os.PRIO_PROCESS, number), os.sched_getaffinity(number)
    return found


def read_children() -> set[int]:
    """Process ids of the children, including zombies."""
    found: set[int] = set()
    for file in _PROC.glob("task/*/children"):
        with suppress(OSError):  # its thread has just ended
            found.update(int(number) for number in file.read_text().split())
    return found


def read_open_files() -> dict[int, str]:
    """Open files with a path, and sockets that listen, by their descriptors.

    Other sockets and pipes can't be distinguished from Ray's.
    """
    found: dict[int, str] = {}
    try:
        numbers = [int(name) for name in os.listdir(_PROC / "fd")]
    except OSError:
        return found
    for number in numbers:
        with suppress(OSError):  # it was closed meanwhile
            name = os.readlink(_PROC / "fd" / str(number))
            mode = os.fstat(number).st_mode
            is_file = name.startswith("/") and (stat.S_ISREG(mode) or stat.S_ISFIFO(mode))
            if (is_file and not name.startswith(("/dev/", "/proc/"))) or (
                stat.S_ISSOCK(mode) and _listens(number)
            ):
                found[number] = name
    return found


def _listens(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as looked_at:
        return bool(looked_at.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


class Patches:
    """Detects replaced functions and classes of loaded modules.

    It checks functions and classes of builtins, the standard library and `_WATCHED`, and the methods of the
    standard library's classes. It also detects that a loaded module was replaced by another module.
    """

    def __init__(self) -> None:
        loaded = list(sys.modules.items())  # in one step: other threads import modules meanwhile
        self._modules = {name: module for name, module in loaded if name != "__main__"}
        self._code = {name: _code_of(module) for name, module in self._modules.items() if _is_watched(name)}
        self._classes = {cls: _code_in(vars(cls)) for cls in self._standard_classes()}
        self._builtins = set(vars(builtins))

    def found(self) -> str | None:
        """Describe the first replacement or new builtin; `None` without one."""
        if added := set(vars(builtins)) - self._builtins - {"_"}:
            return f"builtins.{min(added)} is new"
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                return f"sys.modules[{name!r}] was replaced"
        for name, code in self._code.items():
            now = vars(self._modules[name])
            for attribute, value in code.items():
                if now.get(attribute) is not value:
                    return f"{name}.{attribute} was replaced"
        for cls, methods in self._classes.items():
            for attribute, value in methods.items():
                if vars(cls).get(attribute) is not value:
                    return f"{cls.__module__}.{cls.__qualname__}.{attribute} was replaced"
        return self._in_later_modules()

    def _standard_classes(self) -> Iterator[type]:
        for name, code in self._code.items():
            if _is_standard(name):
                for value in code.values():
                    if isinstance(value, type) and value.__flags__ & _HEAP_TYPE:
                        yield value

    def _in_later_modules(self) -> str | None:
        """Describe a foreign function in a module of the standard library that was loaded later."""
        for name, module in list(sys.modules.items()):
            if not _is_standard(name) or name in self._modules:
                continue
            for attribute, value in _code_of(module).items():
                if isinstance(value, types.FunctionType):
                    home = value.__globals__.get("__name__")
                    if isinstance(home, str) and not _is_standard(home):
                        return f"{name}.{attribute} was replaced"
        return None


#: Bit of `type.__flags__` for heap types: classes whose attributes can be set.
_HEAP_TYPE: Final = 1 << 9


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in _STANDARD


def _is_watched(name: str) -> bool:
    return _is_standard(name) or name.partition(".")[0] in _WATCHED


def _code_of(module: object) -> dict[str, object]:
    if not isinstance(module, types.ModuleType):
        return {}
    return {name: value for name, value in list(vars(module).items()) if callable(value)}


def _code_in(names: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in list(names.items()) if isinstance(value, _CODE)}
