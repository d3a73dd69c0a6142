"""Changes by a job that must not reach a later one in the same process; each runs in a child of this program.

    python leaks.py

Prints a line of JSON: the reason why no other job may run, by the name of the change.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import ctypes
import decimal
import faulthandler
import gc
import json
import locale
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.actors.shared.process_residue import ProcessResidue

KEPT: list[Any] = []


def leaves_a_file_open() -> None:
    KEPT.append(open(__file__))  # noqa: SIM115


def listens() -> None:
    KEPT.append(socket.create_server(("127.0.0.1", 0)))


def lowers_a_limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def gives_up_privileges() -> None:
    no_new_privileges = 38  # PR_SET_NO_NEW_PRIVS of linux/prctl.h
    assert ctypes.CDLL(None).prctl(no_new_privileges, 1, 0, 0, 0) == 0


def exchanges(owner: Any, name: str) -> Callable[[], None]:
    """Replace a function by another one."""
    return lambda: setattr(owner, name, lambda *_: None)


def takes_a_module_away() -> None:
    sys.modules["json"] = types.ModuleType("json")


def imports_and_patches() -> None:
    import colorsys

    colorsys.rgb_to_hsv = exchanges  # type: ignore[assignment]


class Finder:
    """A finder of the user's code."""


DEEDS: dict[str, tuple[Callable[[], object], str]] = {
    "umask": (lambda: os.umask(0o027), "umask"),
    "a limit": (lowers_a_limit, "limits"),
    "privileges": (gives_up_privileges, "restrictions of system calls"),
    "the timeout of sockets": (lambda: socket.setdefaulttimeout(3), "timeout of sockets"),
    "the switch interval": (lambda: sys.setswitchinterval(0.5), "switch interval"),
    "the recursion limit": (lambda: sys.setrecursionlimit(5_000), "recursion limit"),
    "the limit of digits": (lambda: sys.set_int_max_str_digits(0), "limit of digits"),
    "gc off": (gc.disable, "gc"),
    "thresholds of gc": (lambda: gc.set_threshold(1), "gc"),
    "a callback of gc": (lambda: gc.callbacks.append(print), "gc"),
    "time.time": (exchanges(time, "time"), "time.time"),
    "a builtin": (exchanges(builtins, "open"), "builtins.open"),
    "a new builtin": (exchanges(builtins, "of_the_user"), "builtins.of_the_user"),
    "a method of the standard library": (exchanges(socket.socket, "close"), "socket.socket.close"),
    "a bound method": (exchanges(random, "random"), "random.random"),
    "a function of numpy": (exchanges(np, "sum"), "numpy.sum"),
    "a module": (takes_a_module_away, "'json'"),
    "a function of a module that was not loaded": (imports_and_patches, "colorsys.rgb_to_hsv"),
    "a finder": (lambda: sys.meta_path.append(Finder()), "meta_path"),  # type: ignore[arg-type]
    "the locale": (lambda: locale.setlocale(locale.LC_ALL, "C" if LOCALE != "C" else "C.UTF-8"), "locale"),
    "the decimal context": (lambda: setattr(decimal.getcontext(), "prec", 5), "decimal"),
    "the default decimal context": (lambda: setattr(decimal.DefaultContext, "prec", 5), "decimal"),
    "warnings": (lambda: warnings.simplefilter("error"), "warnings"),
    "the environment": (lambda: os.environ.update(LEFT="1"), "environment"),
    "the working directory": (lambda: os.chdir("/usr"), "working directory"),
    "sys.path": (lambda: sys.path.append("/nowhere"), "sys.path"),
    "a signal handler": (lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN), "signal"),
    "a blocked signal": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]), "signal"),
    "an alarm": (lambda: signal.setitimer(signal.ITIMER_REAL, 1_000), "signal"),
    "the root logger": (lambda: logging.getLogger().setLevel(logging.CRITICAL), "logging"),
    "logging off": (lambda: logging.disable(), "logging"),
    "a handler of logs": (lambda: logging.getLogger().addHandler(logging.NullHandler()), "logging"),
    "a library's logger": (lambda: logging.getLogger("asyncio").setLevel("DEBUG"), "'asyncio'"),
    "atexit": (lambda: atexit.register(print), "atexit"),
    "a thread": (lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(), "thread"),
    "sys.excepthook": (exchanges(sys, "excepthook"), "excepthook"),
    "a tracer": (lambda: threading.settrace(print), "hooks"),  # type: ignore[arg-type]
    "faulthandler": (faulthandler.enable, "signal"),
    "the policy of asyncio": (
        lambda: asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()),
        "asyncio",
    ),
    "the temporary folder": (lambda: setattr(tempfile, "tempdir", "/var"), "temporary folder"),
    "errors of numpy": (lambda: np.seterr(all="raise"), "numpy"),
    "output of numpy": (lambda: np.set_printoptions(precision=2), "numpy"),
    "threads of pyarrow": (lambda: pa.set_cpu_count(pa.cpu_count() + 1), "pyarrow"),
    "memory of pyarrow": (lambda: pa.set_memory_pool(pa.system_memory_pool()), "pyarrow"),
    "priority": (lambda: os.nice(3), "priority"),
    "processors": (lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), "priority"),
    "an open file": (leaves_a_file_open, "still open"),
    "an open port": (listens, "still open"),
    "a child": (lambda: KEPT.append(subprocess.Popen(["sleep", "60"])), "child process"),
}
LOCALE = locale.setlocale(locale.LC_ALL)


def said_after(deed: Callable[[], object]) -> str:
    """The answer of `ProcessResidue` in a copy of this process, after the change."""
    reader, writer = os.pipe()
    copy = os.fork()
    if copy == 0:
        traces = ProcessResidue()
        traces.role_taken()
        clean = traces.left()
        deed()
        os.write(writer, str((clean, traces.left())).encode())
        for kept in KEPT:
            if isinstance(kept, subprocess.Popen):
                kept.kill()
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        said = answer.read()
    os.waitpid(copy, 0)
    return said


if __name__ == "__main__":
    print(json.dumps({name: said_after(deed) for name, (deed, _) in DEEDS.items()}))
